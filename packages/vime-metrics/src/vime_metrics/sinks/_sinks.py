"""All destinations of a run behind one.

Laws: a sink that cannot be opened stops the run before it starts; a write that fails in a service warns, and the
numbers are in the JSONL file, which is written first; a JSONL file that fails stops the run, since nothing else is sure
to keep them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from vime_metrics._errors import SinkError
from vime_metrics.sinks._jsonl import JsonlSink
from vime_metrics.sinks._sink import Sink


class SinkWarning(UserWarning):
    """A destination missed a step; the JSONL file has it."""


class MultiSink:
    """Writes to `record`, then to each of `others`; a context manager that closes them.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "metrics.jsonl")
    >>> with MultiSink(JsonlSink(path)) as sink:
    ...     sink.write(0, {"train/loss": 0.5})
    >>> path.read_text()
    '{"step": 0, "train/loss": 0.5}\\n'
    """

    def __init__(self, record: JsonlSink, *others: Sink) -> None:
        self._record = record
        self._others = others

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Keep `values` everywhere; `SinkWarning` for each service that missed them."""
        self._record.write(step, values)
        for sink in self._others:
            try:
                sink.write(step, values)
            except SinkError as error:
                warnings.warn(f"{error} The step is in {self._record.path}.", SinkWarning, stacklevel=2)

    def close(self) -> None:
        """Close every sink, also if one of them cannot finish."""
        for sink in self._others:
            try:
                sink.close()
            except (SinkError, OSError) as error:
                warnings.warn(f"{type(sink).__name__} did not close: {error}", SinkWarning, stacklevel=2)
        self._record.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
