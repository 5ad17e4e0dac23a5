"""`metrics.jsonl`, one line per iteration, and every other sink that the run names.

Always true: a line is whole once `write` returns; its `step` is the iteration; a figure to which nothing was added is
null; every sink gets the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vime_metrics.sinks import JsonlSink

if TYPE_CHECKING:
    from vime_metrics import Metric
    from vime_metrics.sinks import Sink


class MetricsLog:
    """Writes the figures of each iteration to a file and to the other sinks."""

    def __init__(self, path: str | Path, sinks: Sequence[Sink] = ()) -> None:
        self._sinks: tuple[Sink, ...] = (JsonlSink(path), *sinks)

    def write(self, iteration: int, metrics: Mapping[str, Metric | float]) -> dict[str, float]:
        """Write the record of an iteration, and return its figures, sorted by name."""
        values: dict[str, float] = {}
        for name, metric in metrics.items():
            values |= {name: float(metric)} if isinstance(metric, int | float) else metric.report(name)
        values = dict(sorted(values.items()))
        for sink in self._sinks:
            sink.write(iteration, values)
        return values

    def close(self) -> None:
        """Close every sink."""
        for sink in self._sinks:
            sink.close()
