"""The errors of this room."""

from __future__ import annotations

from pathlib import Path

from vime_train._errors import RunError


class StateError(RunError, ValueError):
    """A run directory or a checkpoint that cannot be used: which one, why, and what to do."""


class DamagedRecordError(StateError):
    """The record of a checkpoint that cannot be read."""

    def __init__(self, record: Path, cause: Exception) -> None:
        super().__init__(
            f"{record} cannot be read ({cause!r}): it is damaged; remove {record.parent} to go on from an older one."
        )
        self.record = record
        self.cause = cause
