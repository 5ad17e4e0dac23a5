"""Longest processing time first, under a capacity.

Every item in turn goes to the cheapest bin that has room for it.

Laws
- No bin exceeds the capacity, but for one oversize item alone, and no bin is empty.
- O(n log K): a bin too full for an item waits in a heap by its load and returns when a small enough item comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import chain, islice

from vime_schedule._planner._grid import Grid
from vime_schedule._planner._items import Items


def fill_cheapest(
    items: Items, chosen: Sequence[int], dp: int, num_rows: int, capacity: int, targets: Sequence[int] = ()
) -> Grid | None:
    """Spread the `chosen` items, dearest first, over `num_rows` rows; None if some item finds no room.

    With `targets`, falling from row to row, an item goes to the bin that is farthest below the target of its row; None
    also if some bin got none.

    >>> from vime_schedule._planner._items import sort_items
    >>> items = sort_items([0, 1, 2, 3], loads=[8, 6, 5, 1], costs=[8, 6, 5, 1], capacity=12)
    >>> fill_cheapest(items, range(4), dp=2, num_rows=1, capacity=12).bins
    [[0, 3], [1, 2]]
    """
    num_bins = dp * num_rows
    if len(chosen) < num_bins:
        return None
    highest = sum([target == targets[0] for target in targets]) * dp if targets else num_bins
    level = min(num_bins, max(highest, items.count_above(capacity)))  # bins that get the first items
    bins = [[item] for item in chosen[:level]] + [[] for _ in range(num_bins - level)]
    return add_cheapest(Grid.of(bins, items, dp), items, islice(chosen, level, None), capacity, targets)


def add_cheapest(
    grid: Grid, items: Items, chosen: Iterable[int], capacity: int, targets: Sequence[int] = ()
) -> Grid | None:
    """The same for bins that hold items already, which are changed."""
    bins, num_bins = grid.bins, len(grid.bins)
    shift = num_bins.bit_length()
    mask = (1 << shift) - 1
    loads, costs = items.loads, items.costs
    ahead = list(chain.from_iterable([targets[0] - target] * grid.dp for target in targets)) or [0] * num_bins
    free = [capacity - used for used in grid.used]
    keys = [cost + ahead[b] << shift | b for b, cost in enumerate(grid.costs)]  # cost and bin in one number
    heapify(keys)
    parked: list[tuple[int, int]] = []  # room, negative, and key
    returns = -1  # the load at which the roomiest parked bin comes back
    for item in chosen:
        load, key = loads[item], keys[0]
        if load <= returns or load > free[key & mask]:
            while parked and load <= -parked[0][0]:
                heappush(keys, heappop(parked)[1])
            while keys and load > free[keys[0] & mask]:
                key = heappop(keys)
                heappush(parked, (-free[key & mask], key))
            if not keys:
                return None
            key, returns = keys[0], -parked[0][0] if parked else -1
        b = key & mask
        bins[b].append(item)
        free[b] -= load
        heapreplace(keys, key + (costs[item] << shift))
    if [] in bins:
        return None
    grid.used = [capacity - room for room in free]
    for key in chain(keys, (key for _, key in parked)):
        grid.costs[key & mask] = (key >> shift) - ahead[key & mask]
    return grid
