"""Lower the dearest bin of one row after another by exchanges with bins that have slack.

A row costs as much as its dearest bin, so every other bin of it may become that dear for nothing. The dearest bin of
the row with the most slack swaps an item for a cheaper one of a bin, of any row, whose slack takes the difference.
Where all bins are full, every cheaper item would be a shorter one, which no bin has room to trade; then it swaps an
item for two of a cheap bin of its row, which hold about as much and, by a convex cost, cost less.

Laws
- Every exchange lowers the dearest bin of a row; rows together never become dearer.
- The capacity holds throughout, and no bin is emptied.
- The work is bounded by a number of exchanges and of looks for each (S5).
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import nsmallest
from itertools import combinations
from operator import neg
from typing import NamedTuple

from vime_schedule._planner._grid import Grid
from vime_schedule._planner._items import Items

RAISES = 4  # rows raised on trial
LOOKS = 24  # partners looked at on either side of the best cost, for one item
TAKEN = 8  # of their items looked at, dearest first
GIVEN = 4  # dearest items of a bin that are offered for two
CHEAP = 4  # cheapest bins of the row that are asked for two


class Swap(NamedTuple):
    """Give `item` to bin `there` for `others`."""

    item: int
    others: tuple[int, ...]
    there: int


def lower_rows(grid: Grid, items: Items, capacity: int, goal: int, fair: range) -> None:
    """Swap items until the rows cost at most `goal` in lockstep, or nothing helps.

    While their cost is in `fair`, raise the row with the most room, so that others find slack there, and swap again.
    """
    _run(_Lowering(grid, items, capacity), goal)
    failed: set[int] = set()
    for _ in range(RAISES):
        before = grid.lockstep()
        if before not in fair or len(failed) == grid.num_rows:
            return
        rooms = [-sum(grid.used[start : start + grid.dp]) for start in range(0, len(grid.used), grid.dp)]
        row = max(set(range(grid.num_rows)) - failed, key=rooms.__getitem__)
        trial = grid.copy()
        lowering = _Lowering(trial, items, capacity)
        lowering.raise_row(row)
        _run(lowering, goal)
        if trial.lockstep() < before:
            grid.bins, grid.used, grid.costs = trial.bins, trial.used, trial.costs
        else:
            failed.add(row)


def _run(lowering: _Lowering, goal: int) -> None:
    for _ in lowering.items.indices:
        if sum(lowering.tops) <= goal or not lowering.swap():
            return


class _Lowering:
    """The rows of a grid while they are lowered; the grid is changed in place."""

    def __init__(self, grid: Grid, items: Items, capacity: int) -> None:
        self._grid = grid
        self.items = items
        self._capacity = capacity
        self._oversize = items.count_above(capacity)
        self.tops = grid.row_maxima()
        self._slack = [self._slack_of(row) for row in range(grid.num_rows)]  # 0 once a row cannot be lowered
        self._bin_of = [0] * len(items)
        for b, held in enumerate(grid.bins):
            for item in held:
                self._bin_of[item] = b

    def _slack_of(self, row: int) -> int:
        """How much dearer the bins of a row may become together before it does."""
        dp = self._grid.dp
        return self.tops[row] * dp - sum(self._grid.costs[row * dp : row * dp + dp])

    def raise_row(self, row: int) -> None:
        """Let a row become dearer by half of what the most wasteful row loses to its dearest bin."""
        self.tops[row] += max(self._slack) // (2 * self._grid.dp)
        self._slack[row] = 0

    def swap(self) -> bool:
        """Lower the row with the most slack that can be lowered; whether there was one."""
        dp = self._grid.dp
        while (most := max(self._slack)) > 0:
            row = self._slack.index(most)
            costs = self._grid.costs[row * dp : row * dp + dp]
            place = costs.index(self.tops[row])
            costs[place] = 0
            dearest, wanted, least = row * dp + place, most // dp, max(1, (self.tops[row] - max(costs)) // 2)
            found = self._swap_for_one(dearest, wanted, least) or self._swap_for_two(dearest, wanted, least)
            if found is not None:
                self._apply(dearest, found)
                return True
            self._slack[row] = 0
        return False

    def _swap_for_one(self, dearest: int, wanted: int, least: int) -> Swap | None:
        """The swap that lowers bin `dearest` by at least `least`, and by the amount nearest to `wanted`."""
        costs, loads, bin_of = self.items.costs, self.items.loads, self._bin_of
        first, end = self._oversize, len(costs)
        best: Swap | None = None
        miss = wanted
        for item in self._grid.bins[dearest]:
            cost, load = costs[item], loads[item]
            at = bisect_left(costs, wanted - cost, first, key=neg) if cost > wanted else end
            for others in (range(at, min(at + LOOKS, end)), range(at - 1, max(at - LOOKS, first) - 1, -1)):
                for other in others:
                    change = cost - costs[other]
                    off = abs(change - wanted)
                    if change < least or off >= miss:
                        break
                    there = bin_of[other]
                    if there != dearest and self._can_swap(dearest, there, change, load - loads[other], least):
                        best, miss = Swap(item, (other,), there), off
                        break
        return best

    def _swap_for_two(self, dearest: int, wanted: int, least: int) -> Swap | None:
        """The same for a full bin, with two items of a cheap bin of the row."""
        costs, loads, bins, dp = self.items.costs, self.items.loads, self._grid.bins, self._grid.dp
        if self._capacity - self._grid.used[dearest] >= min([loads[item] for item in bins[dearest]]):
            return None
        row = range(dearest // dp * dp, dearest // dp * dp + dp)
        best: Swap | None = None
        miss = wanted
        for there in nsmallest(CHEAP, row, key=self._grid.costs.__getitem__):
            for item in sorted(bins[dearest])[:GIVEN] if there != dearest else ():
                cost, load = costs[item], loads[item]
                shorter = [other for other in sorted(bins[there]) if loads[other] < load][:TAKEN]
                for one, two in combinations(shorter, 2):
                    change = cost - costs[one] - costs[two]
                    off = abs(change - wanted)
                    if change < least or off >= miss:
                        continue
                    if self._can_swap(dearest, there, change, load - loads[one] - loads[two], least):
                        best, miss = Swap(item, (one, two), there), off
        return best

    def _can_swap(self, dearest: int, there: int, cost: int, load: int, least: int) -> bool:
        """Whether bin `there` can become dearer by `cost` and fuller by `load`, and `dearest` the opposite."""
        grid, row = self._grid, there // self._grid.dp
        if grid.used[there] + load > self._capacity or grid.used[dearest] - load > self._capacity:
            return False
        slack = self.tops[row] - grid.costs[there]
        return cost <= (slack - least if row == dearest // grid.dp else slack)

    def _apply(self, dearest: int, swap: Swap) -> None:
        grid, items = self._grid, self.items
        item, others, there = swap
        for given, home, goal in ((item, dearest, there), *((other, there, dearest) for other in others)):
            grid.bins[home].remove(given)
            grid.bins[goal].append(given)
            self._bin_of[given] = goal
        for values, of in ((grid.used, items.loads), (grid.costs, items.costs)):
            change = of[item] - sum([of[other] for other in others])
            values[dearest] -= change
            values[there] += change
        row, other_row = dearest // grid.dp, there // grid.dp
        self.tops[row] = max(grid.costs[row * grid.dp : row * grid.dp + grid.dp])
        for changed in {row, other_row} if self._slack[other_row] else {row}:
            self._slack[changed] = self._slack_of(changed)
