"""One JSON object per line: the record that needs no service and no account."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from vime_metrics._errors import SinkError


class JsonlSink:
    """Appends `{"step": 3, "train/loss": 0.25}` per write and flushes it; NaN becomes null, infinities become text.

    Appending means that a resumed run continues its file; a reader takes the last line of a step that occurs twice.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a", encoding="utf-8")
        except OSError as error:
            raise SinkError(f"JsonlSink cannot open {self.path}: {error}; give a path that can be written.") from error

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Append one line."""
        line = json.dumps({"step": step, **{name: _encode(value) for name, value in values.items()}}, allow_nan=False)
        try:
            self._file.write(line + "\n")
            self._file.flush()
        except (OSError, ValueError) as error:
            raise SinkError(f"JsonlSink cannot write step {step} to {self.path}: {error}.") from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _encode(value: float) -> float | str | None:
    if math.isfinite(value):
        return value
    return None if math.isnan(value) else repr(value)
