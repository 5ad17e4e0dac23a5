"""Fill rows of micro-batches so that ranks which meet at every micro-batch wait least.

A row costs as much as its dearest bin. Long samples first claim whole rows (`_peel`); what is left is spread evenly
over the other bins (`_lpt`), which are then sorted into rows and levelled inside each row (`_level`).

Laws
- Every item is in exactly one bin, no bin is empty, and none exceeds the capacity but one oversize item alone.
- Rows are in falling order of cost, but for what levelling changed.
- None comes back only if first-fit decreasing finds no packing either.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from vime_schedule._planner._deal import sort_rows
from vime_schedule._planner._grid import Grid
from vime_schedule._planner._items import Items
from vime_schedule._planner._level import level_rows
from vime_schedule._planner._lpt import fill_cheapest
from vime_schedule._planner._peel import FreeItems, first_fit_decreasing, peel_row_at, peel_rows

CLOSE = 0.002  # a packing this near to its ideal ends the search for a better number of peeled rows
FEW, MANY = 4, 2  # numbers of peeled rows tried, for up to LARGE items and above
LARGE = 8192
INSIDE = 3  # rows peeled below the top


@dataclass(frozen=True, slots=True, kw_only=True)
class _Packing:
    """Rows of bins; the first of them are the `fixed` ones, built around long samples."""

    grid: Grid
    fixed: list[list[list[int]]]
    lockstep: int

    @property
    def ideal(self) -> float:
        """What the rows would cost if those that are not fixed were perfectly even."""
        grid, split = self.grid, len(self.fixed) * self.grid.dp
        return sum(grid.row_maxima()[: len(self.fixed)]) + sum(grid.costs[split:]) / grid.dp

    def waste(self) -> list[float]:
        """What the dearest bin of each row costs beyond the mean of the row."""
        grid, dp = self.grid, self.grid.dp
        return [most - sum(grid.costs[r * dp : r * dp + dp]) / dp for r, most in enumerate(grid.row_maxima())]


def pack_rows(items: Items, dp: int, num_rows: int, capacity: int) -> Grid | None:
    """Pack `items` into `num_rows` rows of `dp` bins."""
    if len(items) < dp * num_rows:
        return None
    peeled = peel_rows(FreeItems(items.loads, items.costs), dp, num_rows, capacity) if items.is_monotone else []
    best: _Packing | None = None
    for keep in range(len(peeled), max(-1, len(peeled) - (FEW if len(items) <= LARGE else MANY)), -1):
        packing = _fill_rest(items, peeled[:keep], dp, num_rows, capacity)
        if packing is None:
            continue
        if best is not None and packing.lockstep >= best.lockstep:
            break
        best = packing
        if best.lockstep <= best.ideal * (1 + CLOSE):
            break
    best = best or _fill_rest(items, [], dp, num_rows, capacity)
    if best is None:
        return None
    if items.is_monotone:
        best = _peel_inside(items, best, capacity)
    level_rows(best.grid, items, capacity)
    return best.grid


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
        packing = None if peeled is None else _fill_rest(items, [*best.fixed, peeled], dp, num_rows, capacity)
        if packing is None or packing.lockstep >= best.lockstep:
            break
        best = packing
    return best


def _fill_rest(items: Items, peeled: list[list[list[int]]], dp: int, num_rows: int, capacity: int) -> _Packing | None:
    rest = _remaining(items, peeled)
    below = num_rows - len(peeled)
    filled = fill_cheapest(items, rest, dp, below, capacity) or first_fit_decreasing(items, rest, dp, below, capacity)
    if filled is None:
        return None
    grid = Grid.of(chain.from_iterable(peeled), items, dp) + sort_rows(filled)
    return _Packing(grid=grid, fixed=peeled, lockstep=grid.lockstep())


def _remaining(items: Items, peeled: list[list[list[int]]]) -> list[int]:
    """The items that are in no peeled row, dearest first."""
    if not peeled:
        return list(range(len(items)))
    taken = bytearray(len(items))
    for item in chain.from_iterable(chain.from_iterable(peeled)):
        taken[item] = 1
    return [item for item, is_taken in enumerate(taken) if not is_taken]
