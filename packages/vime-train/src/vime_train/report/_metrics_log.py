"""`metrics.jsonl`, one line per iteration, and every other sink that the run names.

Always true: a line is whole once `write` returns; its `step` is the iteration; a figure to which nothing was added is
null; every sink gets the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vime_metrics import SinkError
from vime_metrics.sinks import JsonlSink
from vime_train._errors import RunError
from vime_train.plugins import calling

if TYPE_CHECKING:
    from vime_metrics import Metric
    from vime_metrics.sinks import Sink


def reported(metrics: Mapping[str, Metric | float]) -> dict[str, float]:
    """The figures of metrics, sorted by name.

    >>> from vime_metrics import Mean
    >>> reported({"rollout/reward": Mean(3.0, 4), "engine/restarts": 1})
    {'engine/restarts': 1.0, 'rollout/reward': 0.75}
    """
    values: dict[str, float] = {}
    for name, metric in metrics.items():
        values |= {name: float(metric)} if isinstance(metric, int | float) else metric.report(name)
    return dict(sorted(values.items()))


class MetricsError(RunError, RuntimeError):
    """Figures that could not be written."""


class MetricsLog:
    """Writes the figures of each iteration to a file and to the other sinks."""

    def __init__(self, path: str | Path, sinks: Sequence[Sink] = ()) -> None:
        self._file = JsonlSink(path)
        self._sinks = tuple(sinks)

    def write(self, iteration: int, metrics: Mapping[str, Metric | float]) -> dict[str, float]:
        """Write the record of an iteration, and return its figures, sorted by name.

        Raises:
            MetricsError: the file could not be written.
            PluginCallError: a sink of the user's raised.
        """
        values = reported(metrics)
        try:
            self._file.write(iteration, values)
        except SinkError as error:
            raise MetricsError(str(error)) from error
        for sink in self._sinks:
            with calling(f"{type(sink).__name__} of tracking.sinks", lambda: f"iteration {iteration}"):
                sink.write(iteration, values)
        return values

    def close(self) -> None:
        """Close every sink."""
        for sink in (self._file, *self._sinks):
            sink.close()
