"""TensorBoard event files; needs the `tensorboard` extra and no torch."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Protocol

from vime_metrics._errors import SinkError
from vime_metrics.sinks._extra import require


class _Writer(Protocol):
    def add_scalar(self, tag: str, data: float, step: int) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class TensorBoardSink:
    """Writes scalars as event files under the directory `path`."""

    def __init__(self, path: str | PathLike[str]) -> None:
        summary = require("tensorboard.summary", "tensorboard")
        try:
            self._writer: _Writer = summary.Writer(str(path))
        except OSError as error:
            raise SinkError(f"TensorBoardSink cannot open {path}: {error}.") from error

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """One scalar per name."""
        try:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)
            self._writer.flush()
        except (OSError, RuntimeError) as error:
            raise SinkError(f"TensorBoardSink cannot write step {step}: {error}.") from error

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()
