"""Rows that one long sample dominates, built bin after bin.

A row costs as much as its dearest bin, so a long sample sets the height of its row whatever shares it. While the
dearest free sample costs more than the mean of the bins still to be filled, a row of that height is peeled off: each of
its bins takes the longest free samples that fit below both the capacity and the height. With no height limit the same
loop is first-fit decreasing.

Laws
- A peeled bin fits the capacity (or is one oversize sample) and costs no more than the first sample of its row.
- Peeling leaves at least one sample for every later bin.
- O(n log n): a bisection finds the next sample that fits, links skip the taken ones.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import neg

from vime_schedule._planner._grid import Grid
from vime_schedule._planner._items import Items


class FreeItems:
    """Items by falling load, some of them taken; the first free one from an index on is found in near constant time."""

    def __init__(self, loads: Sequence[int], costs: Sequence[int]) -> None:
        self.loads = loads
        self.costs = costs
        self.count = len(loads)
        self.cost = sum(costs)
        self._links = array("q", range(len(loads) + 1))  # arrays take a quarter of the memory of lists
        self._falling_loads = array("q", map(neg, loads))

    def next_free(self, item: int) -> int:
        """The first free item from `item` on, or the number of items."""
        links = self._links
        free = item
        while links[free] != free:
            free = links[free]
        while item != free:
            links[item], item = free, links[item]
        return free

    def first_within(self, room: int) -> int:
        """The first item that holds at most `room`, free or not."""
        return bisect_left(self._falling_loads, -room)

    def take(self, taken: Iterable[int]) -> None:
        """Take these free items."""
        for item in taken:
            self._links[item] = item + 1
            self.count -= 1
            self.cost -= self.costs[item]

    def take_bin(self, capacity: int, height: int, keep: int, start: int = 0) -> list[int]:
        """Take the first free item from `start` on and then the longest that fit, until `keep` items are left."""
        links, loads, costs = self._links, self.loads, self.costs
        falling_loads, size = self._falling_loads, len(loads)
        first = self.next_free(start)
        taken = [first]
        room, below = capacity - loads[first], height - costs[first]
        item = first + 1
        spare = self.count - keep - 1
        while spare > 0 and room > 0 and below > 0:
            item = bisect_left(falling_loads, -room, item)
            if item < size and costs[item] > below:
                item = bisect_left(costs, -below, item, key=neg)
            if item < size and links[item] != item:
                item = self.next_free(item)
            if item >= size:
                break
            taken.append(item)
            room -= loads[item]
            below -= costs[item]
            item += 1
            spare -= 1
        self.take(taken)
        return taken


def peel_rows(free: FreeItems, dp: int, num_rows: int, capacity: int) -> list[list[list[int]]]:
    """Peel rows off `free` while its dearest item costs more than the mean of the remaining bins."""
    costs = free.costs
    rows: list[list[list[int]]] = []
    while len(rows) < num_rows - 1:
        height = costs[free.next_free(0)]
        later = dp * (num_rows - len(rows) - 1)
        if height * (dp + later) <= free.cost:
            break
        rows.append([free.take_bin(capacity, height, later + dp - 1 - k) for k in range(dp)])
    return rows


def peel_row_at(
    items: Items, fixed: Iterable[int], start: int, dp: int, later: int, capacity: int
) -> list[list[int]] | None:
    """One row as high as item `start`, from the items from there on that are not `fixed`, leaving `later` of them.

    Where only some bins of a row have a long sample, the others are filled as far as that row allows.
    """
    free = FreeItems(items.loads, items.costs)
    free.take(fixed)
    height = items.costs[start]
    row = []
    for k in range(dp):
        if free.next_free(start) == len(items):
            return None
        row.append(free.take_bin(capacity, height, later + dp - 1 - k, start))
    return row


def _by_load_alone(items: Items, order: Sequence[int]) -> FreeItems:
    """Items that cost nothing, so that any height above 0 takes all of them."""
    return FreeItems([items.loads[item] for item in order], bytes(len(order)))


def count_first_fit(items: Items, capacity: int) -> int:
    """The bins that first-fit decreasing takes."""
    order = sorted(range(len(items)), key=items.loads.__getitem__, reverse=True)
    free, bins = _by_load_alone(items, order), 0
    while free.count:
        free.take_bin(capacity, 1, 0)
        bins += 1
    return bins


def first_fit_decreasing(items: Items, chosen: Sequence[int], dp: int, num_rows: int, capacity: int) -> Grid | None:
    """Fill one bin after another with the longest of the `chosen` items that fit; None if the rows are too few.

    >>> from vime_schedule._planner._items import sort_items
    >>> items = sort_items([0, 1, 2], loads=[6, 5, 4], costs=[6, 5, 4], capacity=10)
    >>> first_fit_decreasing(items, [0, 1, 2], dp=2, num_rows=1, capacity=10).bins
    [[0, 2], [1]]
    """
    num_bins = dp * num_rows
    if len(chosen) < num_bins:
        return None
    order = chosen if items.is_monotone else sorted(chosen, key=items.loads.__getitem__, reverse=True)
    free = _by_load_alone(items, order)
    bins: list[list[int]] = []
    while free.count:
        if len(bins) == num_bins:
            return None
        taken = free.take_bin(capacity, 1, num_bins - len(bins) - 1)
        bins.append([order[index] for index in taken])
    return Grid.of(bins, items, dp)


def fill_rooms(items: Items, grid: Grid, chosen: Sequence[int], capacity: int) -> bool:
    """Fill the rooms of the bins, largest first, with the longest of the `chosen` items; whether none is left.

    >>> from vime_schedule._planner._items import sort_items
    >>> items = sort_items([0, 1, 2, 3], loads=[7, 6, 4, 3], costs=[7, 6, 4, 3], capacity=10)
    >>> grid = Grid.of([[0], [1]], items, dp=2)
    >>> fill_rooms(items, grid, [2, 3], capacity=10), grid.bins
    (True, [[0, 3], [1, 2]])
    """
    order = chosen if items.is_monotone else sorted(chosen, key=items.loads.__getitem__, reverse=True)
    free = _by_load_alone(items, order)
    loads, costs = items.loads, items.costs
    for b in sorted(range(len(grid.bins)), key=grid.used.__getitem__):
        room = capacity - grid.used[b]
        first = free.next_free(free.first_within(room))
        if first < len(order):
            taken = [order[index] for index in free.take_bin(room, 1, 0, first)]
            grid.bins[b] += taken
            grid.used[b] += sum([loads[item] for item in taken])
            grid.costs[b] += sum([costs[item] for item in taken])
    return free.count == 0
