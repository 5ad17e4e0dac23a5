"""Metrics of one kind, laid side by side in the reduction's buffers.

Three collectives serve every kind: `first` are sums, `peaks` are maxima, and `second` are sums whose meaning, or
whose length, depends on the first two. A block owns a slice of each. Nothing but the numbers depends on what a rank
holds: all ranks have the same blocks, and a rank that holds nothing writes nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from vime_metrics._errors import SchemaError
from vime_metrics._metric import Metric
from vime_metrics._numbers import Array

M = TypeVar("M", bound=Metric)


@dataclass(frozen=True, slots=True)
class Mine(Generic[M]):
    """The metrics of a block that the rank `rank` of the group holds, and their positions among the block's keys."""

    metrics: Sequence[M]
    at: NDArray[np.intp] | slice
    rank: int


class Block(ABC, Generic[M]):
    """One slice of each buffer; `keys` in ascending order, `copies` of each key, `names` of the numbers it reports."""

    first_size: int = 0
    peaks_size: int = 0
    has_second: bool = False

    def __init__(self, keys: Sequence[str], copies: Sequence[int]) -> None:
        self.keys = tuple(keys)
        self.copies = np.array(copies, np.float64)

    @property
    def names(self) -> tuple[str, ...]:
        """One name per number that `finish` returns."""
        return self.keys

    def write_first(self, mine: Mine[M], out: Array) -> None:
        """Write sums to `out`, zeros of shape [first_size]."""

    def write_peaks(self, mine: Mine[M], out: Array) -> None:
        """Write maxima to `out`, -inf of shape [peaks_size]."""

    def check(self, first: Array) -> None:
        """Raise `SchemaError` where the reduced counts contradict the declared copies."""

    def second(self, mine: Mine[M], first: Array, peaks: Array) -> Array:
        """This rank's part of the second sums, as long on every rank; given the reduced first sums and peaks."""
        return np.empty(0)

    @abstractmethod
    def finish(self, first: Array, peaks: Array, second: Array) -> Array:
        """The numbers to report, in the order of `names`, from the reduced buffers."""

    def _require_whole(self, counts: Array) -> None:
        """Counts of values that are each held `copies` times are multiples of it."""
        bad = np.flatnonzero(counts % self.copies)
        if bad.size:
            key, copies, count = self.keys[bad[0]], int(self.copies[bad[0]]), int(counts[bad[0]])
            raise SchemaError(
                f"metric {key!r} was declared to have replicas={copies}, but its {count} values over all ranks are not "
                f"{copies} copies of the same data: declare what is sharded with replicas 1."
            )


def column(values: Iterable[float]) -> Array:
    """Floats or ints as one fp64 column; faster than numpy's own conversion of a list."""
    return np.frombuffer(array("d", values)) if values else np.empty(0)


def ratio(numerator: Array, denominator: Array) -> Array:
    """numerator / denominator, NaN where the denominator is 0."""
    out = np.full(numerator.shape, np.nan)
    np.divide(numerator, denominator, out=out, where=denominator != 0)
    return out
