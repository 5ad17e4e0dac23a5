"""The costs that a pipeline simulation is given, as one table with a row per chunk of the model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from vime_schedule._errors import ScheduleError

Costs: TypeAlias = Sequence[float] | Sequence[Sequence[float]]


def cost_table(name: str, costs: Costs, chunks: int, count: int | None = None) -> list[list[float]]:
    """Return one checked cost per chunk and micro-batch; a plain row is spread evenly over the chunks.

    Raises:
        ScheduleError: a cost is not a finite number of at least 0, or the table is not `chunks` rows of the same
            length (`count` if given).
    """
    if len(costs) and all(isinstance(cost, int | float) for cost in costs):
        row = [check_number(f"{name}[{m}]", cost) / chunks for m, cost in enumerate(costs)]
        table = [row] * chunks
    else:
        table = [_row(f"{name}[{chunk}]", row) for chunk, row in enumerate(costs)]
    widths = sorted(set(map(len, table)))
    if len(table) != chunks or len(widths) != 1 or widths[0] == 0 or count not in (None, widths[0]):
        raise ScheduleError(
            f"simulate: `{name}` has {len(table)} rows of {widths} micro-batches: give one cost per micro-batch, or "
            f"pp * vpp = {chunks} rows with {'as many each' if count is None else f'{count} each, as in `costs`'}."
        )
    return table


def check_number(name: str, value: object) -> float:
    """Return a finite number of at least 0."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
        raise ScheduleError(f"simulate: `{name}` is {value!r}: give a finite number, 0 or more.")
    return float(value)


def _row(name: str, row: object) -> list[float]:
    """Return the checked costs of one chunk."""
    if not isinstance(row, list | tuple):
        raise ScheduleError(f"simulate: `{name}` is {row!r} beside rows of costs: give numbers only, or rows only.")
    return [check_number(f"{name}[{m}]", cost) for m, cost in enumerate(row)]
