"""Take the small items out of packed bins and fill them in again, row by row as high as the others ask for.

Long samples fix how low a row can be; short ones fill its other bins up to that for nothing, and only what is left of
them makes rows higher (`_levels`). Packed beside the long ones they went where bins were cheapest then.

Laws
- As for any packing: every item is in exactly one bin, no bin is empty, the capacity holds.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import neg

from vime_schedule._planner._deal import sort_rows
from vime_schedule._planner._grid import Grid
from vime_schedule._planner._items import Items
from vime_schedule._planner._levels import level_rows
from vime_schedule._planner._lpt import add_cheapest

SMALL = 8  # a small item costs at most this part of a bin


def refill_rows(grid: Grid, items: Items, capacity: int) -> Grid | None:
    """The same bins with the small items spread anew; None if they find no room so.

    >>> from vime_schedule._planner._items import sort_items
    >>> costs = [60, 40, 40, 20, 4, 4, 4, 4, 4, 4, 4, 4, 4]
    >>> items = sort_items(range(13), loads=costs, costs=costs, capacity=100)
    >>> grid = Grid.of([[0], [1], [2, 4, 5, 6, 7, 8], [3, 9, 10, 11, 12]], items, dp=2)
    >>> refilled = refill_rows(grid, items, capacity=100)
    >>> grid.row_maxima(), refilled.row_maxima()
    ([60, 60], [60, 40])
    """
    dp, num_bins = grid.dp, len(grid.bins)
    small = bisect_left(
        items.costs, -(items.cost_below[-1] // (num_bins * SMALL)), items.count_above(capacity), key=neg
    )
    load, cost = sum(items.loads[small:]), items.cost_below[-1] - items.cost_below[small]
    if not cost:
        return None
    kept = sort_rows(Grid.of([[item for item in held if item < small] for held in grid.bins], items, dp))
    limits = [held + max(0, capacity - used) * cost / load for held, used in zip(kept.costs, kept.used, strict=True)]
    for start in range(0, num_bins, dp):
        limits[start : start + dp] = sorted(limits[start : start + dp], reverse=True)
    least = [float(height) for height in kept.costs[::dp]]
    held = sum([min(least[b // dp], limit) for b, limit in enumerate(limits)])
    targets = level_rows(least, limits, dp, items.cost_below[-1] - held)
    refilled = add_cheapest(kept, items, items.indices[small:], capacity, list(map(int, targets)))
    return None if refilled is None else sort_rows(refilled)
