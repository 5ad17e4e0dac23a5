"""The error of this room."""

from __future__ import annotations


class StateError(ValueError):
    """A run directory or a checkpoint that cannot be used: which one, why, and what to do."""
