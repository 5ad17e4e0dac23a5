"""`metrics.jsonl`: one JSON object per iteration.

Always true: a line is whole once `write` returns; a figure that is not a number (nothing was added to it) is null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vime_metrics import Metric


class MetricsLog:
    """Appends one record per iteration to a file."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def write(self, iteration: int, metrics: Mapping[str, Metric | float]) -> dict[str, float]:
        """Append the record of an iteration, and return its figures."""
        values: dict[str, float] = {}
        for name, metric in metrics.items():
            values |= {name: float(metric)} if isinstance(metric, int | float) else metric.report(name)
        record = {"iteration": iteration} | {
            name: value if math.isfinite(value) else None for name, value in sorted(values.items())
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        return values
