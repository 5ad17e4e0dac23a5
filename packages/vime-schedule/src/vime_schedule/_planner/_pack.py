"""Fill rows of micro-batches so that ranks which meet at every micro-batch wait least.

A row costs as much as its dearest bin. Long samples first claim whole rows (`_peel`); what is left is spread evenly
over the other bins (`_lpt`), which are then sorted into rows and levelled inside each row (`_level`).

Laws
- Every item is in exactly one bin, no bin is empty, and none exceeds the capacity but one oversize item alone.
- Rows are in falling order of cost, but for what levelling changed.
- None comes back only if first-fit decreasing finds no packing either.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from typing import TypeAlias

from vime_schedule._planner._deal import sort_rows
from vime_schedule._planner._grid import Grid
from vime_schedule._planner._items import Items
from vime_schedule._planner._level import level_rows
from vime_schedule._planner._lpt import fill_cheapest
from vime_schedule._planner._peel import FreeItems, first_fit_decreasing, peel_row_at, peel_rows

Fill: TypeAlias = Callable[[Items, Sequence[int], int, int, int], Grid | None]

CLOSE = 0.002  # a packing this near to its bound ends the search
POOR = 0.005  # one this far is worth first-fit decreasing as well
LARGE = 8192  # items above which searches are shorter
INSIDE = 3  # rows peeled below the top


@dataclass(frozen=True, slots=True, kw_only=True)
class _Packing:
    """Rows of bins; the first of them are the `fixed` ones, built around long samples."""

    grid: Grid
    fixed: list[list[list[int]]]
    lockstep: int

    def waste(self) -> list[float]:
        """What the dearest bin of each row costs beyond the mean of the row."""
        grid, dp = self.grid, self.grid.dp
        return [most - sum(grid.costs[r * dp : r * dp + dp]) / dp for r, most in enumerate(grid.row_maxima())]


def pack_rows(items: Items, dp: int, num_rows: int, capacity: int, bound: float) -> Grid | None:
    """Pack `items` into `num_rows` rows of `dp` bins; the search ends near `bound`, which no rows undercut."""
    if len(items) < dp * num_rows:
        return None
    peeled = peel_rows(FreeItems(items.loads, items.costs), dp, num_rows, capacity) if items.is_monotone else []
    best = _best_peeling(items, peeled, dp, num_rows, capacity, bound, fill_cheapest)
    if best is None or (best.lockstep > bound * (1 + POOR) and len(items) <= LARGE):
        tight = _best_peeling(items, peeled, dp, num_rows, capacity, bound, first_fit_decreasing)
        best = min(filter(None, (best, tight)), key=lambda packing: packing.lockstep, default=None)
    if best is None:
        return None
    if items.is_monotone and best.lockstep > bound * (1 + (CLOSE if len(items) <= LARGE else POOR)):
        best = _peel_inside(items, best, capacity)
    level_rows(best.grid, items, capacity)
    return best.grid


def _best_peeling(
    items: Items,
    peeled: list[list[list[int]]],
    dp: int,
    num_rows: int,
    capacity: int,
    bound: float,
    fill: Fill,
) -> _Packing | None:
    """Keep all peeled rows or fewer, as long as that gets better; None if nothing fits."""
    most = len(peeled)
    keeps = [most, most - 1, most - 2, most - 3, most // 2, most // 4, 0]
    best: _Packing | None = None
    for keep in dict.fromkeys(keeps if len(items) <= LARGE else [most, 0]):
        packing = _fill_rest(items, peeled[:keep], dp, num_rows, capacity, fill) if keep >= 0 else None
        if packing is None:
            continue
        if best is not None and packing.lockstep >= best.lockstep:
            break
        best = packing
        if best.lockstep <= bound * (1 + CLOSE) or len(items) > LARGE:
            break
    return best


def _peel_inside(items: Items, best: _Packing, capacity: int) -> _Packing:
    """Peel rows below the top as well, where one stands out because only some of its bins hold a long sample."""
    dp, num_rows = best.grid.dp, best.grid.num_rows
    for _ in range(INSIDE):
        waste = best.waste()
        row = waste.index(max(waste))
        if waste[row] <= best.lockstep * CLOSE or row < len(best.fixed) or len(best.fixed) + 1 >= num_rows:
            break
        rest = _remaining(items, best.fixed)
        taken = chain.from_iterable(chain.from_iterable(best.fixed))
        start, later = rest[(row - len(best.fixed)) * dp], dp * (num_rows - len(best.fixed) - 1)
        peeled = peel_row_at(items, taken, start, dp, later, capacity)
        fixed = [*best.fixed, peeled] if peeled is not None else best.fixed
        packing = _fill_rest(items, fixed, dp, num_rows, capacity, fill_cheapest) or _fill_rest(
            items, fixed, dp, num_rows, capacity, first_fit_decreasing
        )
        if packing is None or packing.lockstep >= best.lockstep:
            break
        best = packing
    return best


def _fill_rest(
    items: Items, fixed: list[list[list[int]]], dp: int, num_rows: int, capacity: int, fill: Fill
) -> _Packing | None:
    """The fixed rows, and the other items spread over the other rows by `fill`."""
    rest = _remaining(items, fixed)
    if fixed and _overflow(items, rest, dp * (num_rows - len(fixed)), capacity):
        return None
    filled = fill(items, rest, dp, num_rows - len(fixed), capacity)
    if filled is None:
        return None
    grid = Grid.of(chain.from_iterable(fixed), items, dp) + sort_rows(filled)
    return _Packing(grid=grid, fixed=fixed, lockstep=grid.lockstep())


def _overflow(items: Items, rest: Sequence[int], num_bins: int, capacity: int) -> bool:
    """Whether the bins are too few for the loads of `rest` even if all were full; an oversize item fills one bin."""
    over = bisect_left(rest, items.count_above(capacity))
    return sum(map(items.loads.__getitem__, rest[over:])) > capacity * (num_bins - over)


def _remaining(items: Items, peeled: list[list[list[int]]]) -> Sequence[int]:
    """The items that are in no peeled row, dearest first."""
    if not peeled:
        return items.indices
    free = bytearray(b"\1") * len(items)
    for item in chain.from_iterable(chain.from_iterable(peeled)):
        free[item] = 0
    return list(compress(items.indices, free))
