"""Collecting the metrics of one step from wherever they arise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Final

from vime_metrics._errors import MetricError
from vime_metrics._extremes import Last, Max, Min
from vime_metrics._merge import add, require_metric
from vime_metrics._metric import Metric
from vime_metrics._moments import Std
from vime_metrics._numbers import Values
from vime_metrics._quantiles import Quantiles
from vime_metrics._sums import Count, Mean, Sum

_BUILDERS: Final[dict[str, Callable[[Values], Metric]]] = {
    "sum": Sum.of,
    "count": Count.of,
    "mean": Mean.of,
    "min": Min.of,
    "max": Max.of,
    "std": Std.of,
    "quantiles": Quantiles.of,
}


class Recorder:
    """The metrics of the step in progress: add from anywhere, drain once per step, reduce what came out.

    Safe to share between threads.

    >>> recorder = Recorder()
    >>> for loss, tokens in [(2.0, 4), (1.0, 12)]:
    ...     recorder.add("train/loss", Mean(loss * tokens, tokens))
    >>> recorder.record("response/length", [100, 300], reduce="max")
    >>> {key: metric.value for key, metric in recorder.drain().items()}
    {'train/loss': 1.25, 'response/length': 300.0}
    >>> recorder.drain()
    {}
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._metrics: dict[str, Metric] = {}
        self._num_lasts = 0

    def add(self, key: str, metric: Metric) -> None:
        """Add `metric` to what is already under `key`."""
        require_metric(key, metric)
        with self._lock:
            known = self._metrics.get(key)
            self._metrics[key] = metric if known is None else add(key, known, metric)

    def update(self, metrics: Mapping[str, Metric], prefix: str = "") -> None:
        """Add every one of `metrics`, its key after `prefix`."""
        for key, metric in metrics.items():
            self.add(prefix + key, metric)

    def record(self, key: str, values: Values, reduce: str = "mean") -> None:
        """Add `values` (a number, an array, a tensor) by the name of their reduction, as a config file would say it.

        `last` keeps what was recorded last since the recorder was drained.
        """
        builder = self._last_of if reduce == "last" else _BUILDERS.get(reduce)
        if builder is None:
            known = ", ".join(sorted({"last", *_BUILDERS}))
            raise MetricError(f"metric {key!r}: unknown reduction {reduce!r}; known are {known}.")
        try:
            metric = builder(values)
        except MetricError as error:
            raise MetricError(f"metric {key!r}: {error}") from error
        self.add(key, metric)

    def drain(self) -> dict[str, Metric]:
        """The metrics so far; the recorder is empty afterwards."""
        with self._lock:
            metrics, self._metrics = self._metrics, {}
        return metrics

    def _last_of(self, values: Values) -> Last:
        with self._lock:
            self._num_lasts += 1
            return Last.of(values, step=self._num_lasts)


_current: ContextVar[Recorder] = ContextVar("vime_metrics_recorder")


@contextmanager
def recording(recorder: Recorder) -> Iterator[Recorder]:
    """Make `recorder` the one that `record` reaches inside the block, however deep the call."""
    token = _current.set(recorder)
    try:
        yield recorder
    finally:
        _current.reset(token)


def record(key: str, metric: Metric) -> None:
    """Add `metric` to the recorder of the enclosing `recording` block; without one, do nothing.

    A loss function may call this unconditionally: it costs nothing where nobody records.

    >>> with recording(Recorder()) as recorder:
    ...     record("train/clipped", Count(3))
    >>> recorder.drain()["train/clipped"].value
    3.0
    """
    recorder = _current.get(None)
    if recorder is not None:
        recorder.add(key, metric)
