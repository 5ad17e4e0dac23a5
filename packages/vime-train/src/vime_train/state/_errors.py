"""The error of this room."""

from __future__ import annotations

from vime_train._errors import RunError


class StateError(RunError, ValueError):
    """A run directory or a checkpoint that cannot be used: which one, why, and what to do."""
