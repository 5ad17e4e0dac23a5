"""What a destination for metrics has to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Sink(Protocol):
    """A place that keeps the numbers of each step.

    Opening one fails with `SinkError`, at setup and not at step 400; so does a write that the place refuses.
    """

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Keep `values`, name to number, of `step`."""

    def close(self) -> None:
        """Flush and let go; nothing is written afterwards."""
