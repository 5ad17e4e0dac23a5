"""What can go wrong, by who has to act."""

from __future__ import annotations


class MetricError(ValueError):
    """A value, weight, key or reduction that cannot be counted; the text says which and what is needed."""


class SchemaError(MetricError):
    """The ranks of a reduction do not agree; raised on every rank, and names the rank and the key."""


class ReductionError(RuntimeError):
    """A collective did not finish: a rank died or never came; names the missing ranks and what was being reduced."""


class SinkError(RuntimeError):
    """A destination for metrics could not be opened or written."""
