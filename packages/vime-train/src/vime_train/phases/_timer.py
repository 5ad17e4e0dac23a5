"""Wall-clock time of the phases of one iteration."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from vime_metrics import Sum


class Timer:
    """Seconds per phase.

    Example:
        >>> timer = Timer()
        >>> with timer.phase("train"):
        ...     pass
        >>> sorted(timer.metrics())
        ['time/step', 'time/train']
    """

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the block to a phase."""
        start = time.monotonic()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.monotonic() - start

    @property
    def seconds(self) -> float:
        """Since the timer was made."""
        return time.monotonic() - self._start

    def metrics(self) -> dict[str, Sum]:
        """`time/PHASE` for each phase, and `time/step` since the timer was made, in seconds."""
        phases = {f"time/{name}": Sum(seconds) for name, seconds in self._seconds.items()}
        return {**phases, "time/step": Sum(self.seconds)}
