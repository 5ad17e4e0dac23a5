"""Read `metrics.jsonl`.

Always true: one record per iteration, in order, the last one written where an iteration was run again after a resume;
a last line that a crash cut off is left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The figures of one iteration; iteration 0 is the state before the first."""

    iteration: int
    values: dict[str, float]


def read_records(path: str | Path) -> list[Record]:
    """The records of a run, by iteration."""
    found: dict[int, Record] = {}
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        try:
            columns = json.loads(line)
        except json.JSONDecodeError:
            break
        values = {name: float("nan") if value is None else float(value) for name, value in columns.items()}
        iteration = int(values.pop("step"))
        found[iteration] = Record(iteration=iteration, values=values)
    return [found[iteration] for iteration in sorted(found)]


def series(records: Iterable[Record], name: str) -> tuple[list[int], list[float]]:
    """Iterations and values of one figure, where it has one."""
    pairs = [
        (record.iteration, record.values[name])
        for record in records
        if name in record.values and not math.isnan(record.values[name])
    ]
    return [iteration for iteration, _ in pairs], [value for _, value in pairs]
