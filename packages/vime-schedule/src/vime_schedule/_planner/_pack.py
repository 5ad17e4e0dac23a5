"""Fill rows of micro-batches so that ranks which meet at every micro-batch wait least.

A row costs as much as its dearest bin. A first packing (`_start`) that is not close to the bound is rebuilt. Where bins
hold many samples, rows that a long one holds up are peeled, and the short samples are filled in anew (`_refill`). Where
they hold two or three, all are matched anew (`_rematch`). At last the dearest bins are lowered by swaps (`_lower`).

Laws
- Every item is in exactly one bin, no bin is empty, and none exceeds the capacity but one oversize item alone.
- None comes back only if first-fit decreasing finds no packing either.
"""

from __future__ import annotations

from vime_schedule._planner._deal import sort_rows
from vime_schedule._planner._grid import Grid
from vime_schedule._planner._heights import RowHeights
from vime_schedule._planner._items import Items
from vime_schedule._planner._lower import lower_rows
from vime_schedule._planner._lpt import fill_cheapest
from vime_schedule._planner._refill import refill_rows
from vime_schedule._planner._rematch import rematch_rows
from vime_schedule._planner._start import MANY, first_packing, peel_inside

CLOSE = 0.003  # a packing this near to its bound is not rebuilt
LEVEL = 0.0009  # few items are lowered to this near, more of them to less
FAIR = 0.0045  # where items are many, one this near does
FAR = 0.008  # one farther away is not worth a longer search
PAIRS = 3  # samples per bin below which they are matched anew


def pack_rows(
    items: Items, dp: int, num_rows: int, capacity: int, heights: RowHeights, *, by_step: bool = False
) -> Grid | None:
    """Pack `items` into `num_rows` rows of `dp` bins; the search ends near the bound, which no rows undercut."""
    if len(items) < dp * num_rows:
        return None
    close, fair, far = (int(heights.bound * (1 + gap)) for gap in (CLOSE, FAIR, FAR))
    enough = close if len(items) <= MANY else fair
    packed = first_packing(items, dp, num_rows, capacity, heights, enough, by_step=by_step)
    if packed is None or by_step:
        return packed
    starts = [packed]
    if packed.lockstep() > enough:
        few = len(items) < PAIRS * dp * num_rows
        rebuild = _rebuild_few if few else _rebuild_many
        starts = sorted(rebuild(items, packed, capacity, heights, fair if few else close), key=Grid.lockstep)
    goal = int(heights.bound * (1 + min(FAIR, max(LEVEL, FAIR * len(items) / MANY))))
    for grid in starts:
        if grid.lockstep() > goal:
            lower_rows(grid, items, capacity, goal, range(fair, far))
        if not fair < grid.lockstep() <= far:
            break
    return min(starts, key=Grid.lockstep)


def _rebuild_few(items: Items, packed: Grid, capacity: int, heights: RowHeights, enough: int) -> list[Grid]:
    """Where bins hold few items: with the small ones filled in anew, or else all matched anew."""
    dp, num_rows = packed.dp, packed.num_rows
    refilled = refill_rows(packed, items, capacity) or packed
    if refilled.lockstep() <= enough or len(items) > MANY:
        return [refilled]
    aimed = fill_cheapest(items, items.indices, dp, num_rows, capacity, heights.lowered(packed.row_maxima()))
    matched = rematch_rows(packed if aimed is None else sort_rows(aimed), items, capacity, enough)
    return [min(matched, refilled, key=Grid.lockstep)]


def _rebuild_many(items: Items, packed: Grid, capacity: int, heights: RowHeights, enough: int) -> list[Grid]:
    """Where bins hold many items: with rows peeled, and with the small ones filled in anew."""
    peeled = peel_inside(items, packed, capacity, enough) if items.is_monotone and len(items) <= MANY else packed
    refilled = refill_rows(peeled, items, capacity)
    return [peeled] if refilled is None else [peeled, refilled]
