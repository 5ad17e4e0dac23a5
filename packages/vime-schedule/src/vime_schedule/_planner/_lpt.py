"""Longest processing time first, under a capacity.

Every item in turn goes to the cheapest bin that has room for it.

Laws
- No bin exceeds the capacity, but for one oversize item alone.
- No bin is left empty.
- O(n log K): a bin too full for an item waits in a heap by its load and returns when a small enough item comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace

from vime_schedule._planner._items import Items


def fill_cheapest(
    items: Items, chosen: Sequence[int], num_bins: int, capacity: int, heads: Sequence[int] | None = None
) -> list[list[int]] | None:
    """Spread the `chosen` items, dearest first, over bins that start at the virtual costs `heads` (0 unless given).

    Returns None if some item finds no room.

    >>> from vime_schedule._planner._items import sort_items
    >>> items = sort_items([0, 1, 2, 3], loads=[8, 6, 5, 1], costs=[8, 6, 5, 1], capacity=12)
    >>> fill_cheapest(items, range(4), 2, 12)
    [[0, 3], [1, 2]]
    """
    if len(chosen) < num_bins:
        return None
    loads, costs = items.loads, items.costs
    shift = num_bins.bit_length()
    mask = (1 << shift) - 1
    bins: list[list[int]] = [[] for _ in range(num_bins)]
    used = [0] * num_bins
    open_bins = list(range(num_bins)) if heads is None else [(head << shift) | b for b, head in enumerate(heads)]
    heapify(open_bins)
    keys = [0] * num_bins
    waiting: list[int] = []
    never = (capacity + 1) << shift
    returns = never  # the first waiting key
    for item in chosen:
        load = loads[item]
        limit = capacity - load
        if returns < (limit + 1) << shift:
            while waiting and waiting[0] < (limit + 1) << shift:
                b = heappop(waiting) & mask
                heappush(open_bins, keys[b])
            returns = waiting[0] if waiting else never
        if not open_bins:
            return None
        key = open_bins[0]
        b = key & mask
        while used[b] > limit and used[b]:
            keys[b] = heappop(open_bins)
            if used[b] < capacity:
                heappush(waiting, (used[b] << shift) | b)
                returns = waiting[0]
            if not open_bins:
                return None
            key = open_bins[0]
            b = key & mask
        bins[b].append(item)
        used[b] += load
        heapreplace(open_bins, key + (costs[item] << shift))
    return bins if all(bins) else _fill_empty(bins)


def _fill_empty(bins: list[list[int]]) -> list[list[int]] | None:
    """Give every empty bin the last item of the bin that has several and ends with the cheapest."""
    empty = [b for b, held in enumerate(bins) if not held]
    donors = sorted((b for b, held in enumerate(bins) if len(held) > 1), key=lambda b: bins[b][-1])
    for b in empty:
        while donors and len(bins[donors[-1]]) == 1:
            donors.pop()
        if not donors:
            return None
        bins[b].append(bins[donors[-1]].pop())
    return bins
