"""Longest processing time first, under a capacity.

Every item in turn goes to the cheapest bin that has room for it.

Laws
- No bin exceeds the capacity, but for one oversize item alone, and no bin is empty.
- O(n log K): a bin too full for an item waits in a heap by its load and returns when a small enough item comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice

from vime_schedule._planner._grid import Grid
from vime_schedule._planner._items import Items


def fill_cheapest(items: Items, chosen: Sequence[int], dp: int, num_rows: int, capacity: int) -> Grid | None:
    """Spread the `chosen` items, dearest first, over `num_rows` rows; None if some item finds no room.

    >>> from vime_schedule._planner._items import sort_items
    >>> items = sort_items([0, 1, 2, 3], loads=[8, 6, 5, 1], costs=[8, 6, 5, 1], capacity=12)
    >>> fill_cheapest(items, range(4), dp=2, num_rows=1, capacity=12).bins
    [[0, 3], [1, 2]]
    """
    num_bins = dp * num_rows
    if len(chosen) < num_bins:
        return None
    shift = num_bins.bit_length()
    mask = (1 << shift) - 1
    loads, costs = items.loads, items.costs
    bins = [[item] for item in chosen[:num_bins]]
    used = [loads[item] for item in chosen[:num_bins]]
    keys = [costs[item] << shift | b for b, item in enumerate(chosen[:num_bins])]  # cost and bin in one number
    open_bins = keys.copy()
    heapify(open_bins)
    waiting: list[tuple[int, int]] = []  # load and bin
    returns = never = capacity + 1  # the load of the first waiting bin
    for item in islice(chosen, num_bins, None):
        load = loads[item]
        limit = capacity - load
        if returns <= limit:
            while waiting and waiting[0][0] <= limit:
                heappush(open_bins, keys[heappop(waiting)[1]])
            returns = waiting[0][0] if waiting else never
        if not open_bins:
            return None
        key = open_bins[0]
        b = key & mask
        while used[b] > limit:
            keys[b] = heappop(open_bins)
            if used[b] < capacity:
                heappush(waiting, (used[b], b))
                returns = waiting[0][0]
            if not open_bins:
                return None
            key = open_bins[0]
            b = key & mask
        bins[b].append(item)
        used[b] += load
        heapreplace(open_bins, key + (costs[item] << shift))
    for key in open_bins:
        keys[key & mask] = key
    return Grid(dp=dp, bins=bins, used=used, costs=[key >> shift for key in keys])
