"""How much of an iteration nobody worked: neither a trainer nor an engine.

Always true: an engine that was started again within the iteration counts with what its newest process did.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Busy(Protocol):
    """Processes that tell how long each has worked so far, in seconds."""

    def busy_seconds(self) -> Sequence[float]:
        """One number per process; a process that was started again begins at 0."""


class Work:
    """What groups of processes did since this was made; the groups work in turns, never two at once.

    Example:
        >>> class Group:
        ...     told = iter([[1.0, 1.5], [3.0, 3.25]])
        ...     def busy_seconds(self):
        ...         return next(self.told)
        >>> Work([Group()]).orchestration(seconds=2.5)
        0.5
    """

    def __init__(self, groups: Sequence[Busy]) -> None:
        self._groups = groups
        self._before = self._read()

    def orchestration(self, *, seconds: float) -> float:
        """Of the `seconds` since this was made, those in which no group worked: Ray, plans, rewards, metrics, data on
        its way. A group works as long as the process of it that works longest."""
        pairs = zip(self._before, self._read(), strict=True)
        return max(0.0, seconds - sum(_longest(before, after) for before, after in pairs))

    def _read(self) -> list[Sequence[float]]:
        return [group.busy_seconds() for group in self._groups]


def _longest(before: Sequence[float], after: Sequence[float]) -> float:
    return max(now - then if now >= then else now for then, now in zip(before, after, strict=True))
