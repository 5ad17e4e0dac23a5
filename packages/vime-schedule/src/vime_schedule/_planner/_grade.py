"""Micro-batches of graded sizes for a pipeline: small at both ends, where it fills and drains.

While a pipeline fills, its last stage has only what came through so far to work on, twice as long backward as forward,
and the next micro-batch needs all stages before it. So each of the first micro-batches may cost 1 + 2 / pp times the
one before without the last stage running dry, and the last ones fall as they rose: then the makespan holds less idle
time than equal micro-batches leave.

Laws
- Every item is in exactly one bin, no bin is empty or above the capacity but one oversize item alone.
- Rows come in falling order of their targets, two of each height below the full one: one for either end.
"""

from __future__ import annotations

from math import fsum

from vime_schedule._planner._grid import Grid
from vime_schedule._planner._items import Items
from vime_schedule._planner._lpt import fill_cheapest


def pack_graded(items: Items, dp: int, num_rows: int, capacity: int, pp: int) -> Grid | None:
    """Pack `items` into rows that are small at both ends of the step; None if they do not fit so.

    >>> from vime_schedule._planner._items import sort_items
    >>> items = sort_items(range(16), loads=[1] * 16, costs=[1] * 16, capacity=9)
    >>> [len(held) for held in pack_graded(items, dp=1, num_rows=5, capacity=9, pp=2).bins]
    [4, 4, 4, 2, 2]
    """
    return fill_cheapest(items, items.indices, dp, num_rows, capacity, _targets(items, dp, num_rows, pp))


def _targets(items: Items, dp: int, num_rows: int, pp: int) -> list[int]:
    """What a bin of each row should cost; as many heights below the full one as stages before the last."""
    heights = min(pp - 1, (num_rows - 1) // 2)
    parts = [1.0] * (num_rows - 2 * heights)
    parts += [(1 + 2 / pp) ** -(place + 1) for place in range(heights) for _ in range(2)]
    unit = items.cost_below[-1] / (dp * fsum(parts))
    return [int(part * unit) for part in parts]
