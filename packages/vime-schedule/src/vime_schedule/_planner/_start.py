"""The packings that a search for even rows starts from.

Long samples claim whole rows (`_peel`), and what is left is spread evenly over the other bins (`_lpt`). Where that
stays away from the bound, every sample goes to the bin that is farthest below the best height of its row (`_heights`).
Where neither fits, only most of the samples are spread, and the others fill the rooms that are left, longest first.
Later, rows inside a packing that a long sample holds up are peeled too.

Laws
- Every item is in exactly one bin, no bin is empty, and none exceeds the capacity but one oversize item alone.
- None comes back only if first-fit decreasing finds no packing either.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, chain, compress
from typing import TypeAlias

from vime_schedule._planner._deal import sort_rows
from vime_schedule._planner._grid import Grid
from vime_schedule._planner._heights import RowHeights
from vime_schedule._planner._items import Items
from vime_schedule._planner._lpt import fill_cheapest
from vime_schedule._planner._peel import FreeItems, fill_rooms, first_fit_decreasing, peel_row_at, peel_rows

Fill: TypeAlias = Callable[[Items, Sequence[int], int, int, int], Grid | None]
Rows: TypeAlias = list[list[list[int]]]

MANY = 8192  # items above which searches are shorter
INSIDE = 3  # rows peeled below the top
LAST = 0.2  # the part of the load that fills rooms where bins are tight


def first_packing(
    items: Items, dp: int, num_rows: int, capacity: int, heights: RowHeights, close: int, *, by_step: bool
) -> Grid | None:
    """The packing that costs least in lockstep; the search ends at one that costs at most `close`."""
    packings: list[Grid] = []
    if len(items) <= MANY or not _is_tight(items, dp * num_rows, capacity):
        packings += _peel_and_spread(items, dp, num_rows, capacity, close)
        if not packings or (packings[-1].lockstep() > close and not by_step):
            aimed = fill_cheapest(items, items.indices, dp, num_rows, capacity, heights.targets())
            packings += [] if aimed is None else [sort_rows(aimed)]
    packings = packings or _fill_tightly(items, dp, num_rows, capacity)
    packings = packings or _fill_rest(items, [], dp, num_rows, capacity, first_fit_decreasing)
    return min(packings, key=Grid.lockstep, default=None)


def _peel_and_spread(items: Items, dp: int, num_rows: int, capacity: int, close: int) -> list[Grid]:
    """Peel all rows or fewer, and spread the other items evenly; what fits, up to the first that is `close`."""
    stands_out = items.is_monotone and items.costs[0] * dp * num_rows > items.cost_below[-1]
    peeled = peel_rows(FreeItems(items.loads, items.costs), dp, num_rows, capacity) if stands_out else []
    most = len(peeled)
    packings: list[Grid] = []
    for keep in dict.fromkeys((most, max(0, most - 1), most // 2) if len(items) <= MANY else (most,)):
        packings += _fill_rest(items, peeled[:keep], dp, num_rows, capacity, fill_cheapest)
        if packings and packings[-1].lockstep() <= close:
            break
    return packings


def _fill_tightly(items: Items, dp: int, num_rows: int, capacity: int) -> list[Grid]:
    """Spread all but the last items over the bins, and fill the rooms with those; nothing if they do not fit."""
    cut = _spread_count(items)
    if cut < dp * num_rows:
        return []
    spread = fill_cheapest(items, items.indices[:cut], dp, num_rows, capacity)
    if spread is None or not fill_rooms(items, spread, items.indices[cut:], capacity):
        return []
    return [sort_rows(spread)]


def _spread_count(items: Items) -> int:
    """The number of items, longest first, that hold all but the last part of the load."""
    loads = array("d", accumulate(items.loads))  # a quarter of the memory of a list
    return bisect_right(loads, loads[-1] * (1 - LAST))


def _fill_rest(items: Items, fixed: Rows, dp: int, num_rows: int, capacity: int, fill: Fill) -> list[Grid]:
    """The fixed rows, and the other items spread over the other rows by `fill`; nothing if they do not fit."""
    rest = _remaining(items, fixed)
    if fixed and _overflow(items, rest, dp * (num_rows - len(fixed)), capacity):
        return []
    filled = fill(items, rest, dp, num_rows - len(fixed), capacity)
    return [] if filled is None else [Grid.of(chain.from_iterable(fixed), items, dp) + sort_rows(filled)]


def peel_inside(items: Items, best: Grid, capacity: int, close: int) -> Grid:
    """Peel the row that wastes most, where only some of its bins hold a long sample, then the next, while that pays."""
    dp, num_rows = best.dp, best.num_rows
    fixed: Rows = []
    while len(fixed) < min(INSIDE, num_rows - 1) and best.lockstep() > close:
        sums = [sum(best.costs[start : start + dp]) for start in range(0, len(best.costs), dp)]
        waste = [top * dp - held for top, held in zip(best.row_maxima(), sums, strict=True)][len(fixed) :]
        rest = _remaining(items, fixed)
        start, later = rest[waste.index(max(waste)) * dp], dp * (num_rows - len(fixed) - 1)
        taken = chain.from_iterable(chain.from_iterable(fixed))
        peeled = peel_row_at(items, taken, start, dp, later, capacity)
        fixed = fixed if peeled is None else [*fixed, peeled]
        packings = _fill_rest(items, fixed, dp, num_rows, capacity, fill_cheapest) or _fill_rest(
            items, fixed, dp, num_rows, capacity, first_fit_decreasing
        )
        if peeled is None or not packings or packings[0].lockstep() >= best.lockstep():
            break
        best = packings[0]
    return best


def _is_tight(items: Items, num_bins: int, capacity: int) -> bool:
    """Whether a bin has room for less than half of the shortest sample on average, which spreading hardly ever fits."""
    over = items.count_above(capacity)
    room = capacity * (num_bins - over) - sum(items.loads[over:])
    return 2 * room < num_bins * (items.loads[-1] if items.is_monotone else min(items.loads))


def _overflow(items: Items, rest: Sequence[int], num_bins: int, capacity: int) -> bool:
    """Whether the bins are too few for the loads of `rest` even if all were full; an oversize item fills one bin."""
    over = bisect_left(rest, items.count_above(capacity))
    return sum(map(items.loads.__getitem__, rest[over:])) > capacity * (num_bins - over)


def _remaining(items: Items, peeled: Rows) -> Sequence[int]:
    """The items that are in no peeled row, dearest first."""
    if not peeled:
        return items.indices
    free = bytearray(b"\1") * len(items)
    for item in chain.from_iterable(chain.from_iterable(peeled)):
        free[item] = 0
    return list(compress(items.indices, free))
