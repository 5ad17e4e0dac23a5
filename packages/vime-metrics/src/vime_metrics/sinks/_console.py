"""A table on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TextIO


class ConsoleSink:
    """Prints one aligned table per step, one line per metric, to `stream` (standard output)."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Print the table of `step`."""
        print(table(step, values), file=self._stream or sys.stdout, flush=True)

    def close(self) -> None:
        """Nothing to let go: the stream belongs to the caller."""


def table(step: int, values: Mapping[str, float]) -> str:
    """The text of one step.

    >>> print(table(3, {"train/loss": 0.25, "tokens": 4096.0}))
    step 3
      train/loss  0.25
      tokens      4096
    """
    width = max(map(len, values), default=0)
    return "\n".join([f"step {step}", *(f"  {name:<{width}}  {value:.6g}" for name, value in values.items())])
