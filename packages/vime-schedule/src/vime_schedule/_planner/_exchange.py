"""Level the costs of groups of bins by moving and swapping single items.

The dearest group gives to one of the cheapest: the item, or the difference of two items, nearest to half of what lies
between them. Groups are the bins of one row (to lower what the row costs), or the ranks (to lower the dearest rank).

Laws
- Capacity and ceilings hold throughout, no bin is emptied, and the dearest group never becomes dearer.
- The work is bounded by a number of moves, never by time (S5).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from operator import floordiv

from vime_schedule._planner._grid import Grid
from vime_schedule._planner._items import Items

UNLIMITED = 2**62
GOOD_ENOUGH = 4  # a transfer within a quarter of the ideal one ends the search for a better one


class Exchange:
    """Groups of bins of one grid, and the moves between them.

    Args:
        grid: changed in place by `run`.
        items: what the bins hold.
        groups: bins of each group.
        ceilings: the most cost of every bin of the grid, as far as it takes items.
        capacity: the most load of a bin.
        tries: how many of the cheapest groups are offered what the dearest wants to give.
    """

    def __init__(
        self,
        grid: Grid,
        items: Items,
        groups: Sequence[Sequence[int]],
        *,
        ceilings: Sequence[int] | None = None,
        capacity: int,
        tries: int,
    ) -> None:
        self._grid = grid
        self._items = items
        self._groups = groups
        self._capacity = capacity
        self._tries = tries
        self._members = [sorted([item for b in bins for item in grid.bins[b]]) for bins in groups]
        self._costs = [sum([grid.costs[b] for b in bins]) for bins in groups]
        self._ceilings = ceilings
        self._densest = 0 if ceilings is None else max(map(floordiv, items.costs, items.loads)) + 1
        self._bin_of = {item: b for bins in groups for b in bins for item in grid.bins[b]}
        self._sizes = {b: len(grid.bins[b]) for bins in groups for b in bins}

    def run(self, target: int, max_moves: int) -> int:
        """Move items until no group costs more than `target`, nothing helps, or `max_moves` are made; how many were."""
        cost_of = self._costs.__getitem__
        order = sorted(range(len(self._groups)), key=cost_of)
        moves = 0
        while moves < max_moves and self._costs[order[-1]] > target:
            heavy = order[-1]
            least = (self._costs[heavy] - target) // max_moves
            light = self._give(heavy, order[:-1], least)
            if light is None:
                break
            order.pop()
            order.remove(light)
            insort(order, heavy, key=cost_of)
            insort(order, light, key=cost_of)
            moves += 1
        if moves:
            self._write_back()
        return moves

    def _give(self, heavy: int, candidates: Sequence[int], least: int) -> int | None:
        """Make one transfer to one of the candidates, cheapest first, that can take `least`; which it was."""
        tried = 0
        for light in candidates:
            takes = min(self._costs[heavy] - self._costs[light] >> 1, max(map(self._slack, self._groups[light])))
            if takes <= least:
                continue
            best = self._best_transfer(heavy, light, takes)
            if best is not None:
                self._apply(heavy, light, *best)
                return light
            tried += 1
            if tried == self._tries:
                break
        return None

    def _best_transfer(self, heavy: int, light: int, wanted: int) -> tuple[int, int | None, int] | None:
        """What to give, what to take back (None for a move), and the bin of `light` it goes to, nearest to `wanted`."""
        costs, loads, bin_of = self._items.costs, self._items.loads, self._bin_of
        used, sizes, capacity, slack = self._grid.used, self._sizes, self._capacity, self._slack
        enough = wanted // GOOD_ENOUGH
        takers = self._members[light]
        num_takers = len(takers)
        roomy = self._roomiest(light)
        best: tuple[int, int | None, int] | None = None
        miss = wanted
        pointer = 0
        for item in self._members[heavy]:
            cost, load, home = costs[item], loads[item], bin_of[item]
            excess = cost - wanted
            if abs(excess) < miss and sizes[home] > 1 and used[roomy] + load <= capacity and cost <= slack(roomy):
                best, miss = (item, None, roomy), abs(excess)
            if excess > 0:
                while pointer < num_takers and costs[takers[pointer]] > excess:
                    pointer += 1
                for other in takers[max(pointer - 1, 0) : pointer + 1]:
                    off = abs(excess - costs[other])
                    if off < miss:
                        there, change = bin_of[other], load - loads[other]
                        fits = used[there] + change <= capacity and used[home] - change <= capacity
                        if fits and cost - costs[other] <= slack(there):
                            best, miss = (item, other, there), off
            elif -excess >= miss:
                break
            if miss <= enough:
                break
        return best

    def _slack(self, b: int) -> int:
        """How much dearer bin `b` may become, as far as its ceiling and its room tell."""
        if self._ceilings is None:
            return UNLIMITED
        room = self._capacity - self._grid.used[b]
        return min(self._ceilings[b] - self._grid.costs[b], room * self._densest)

    def _roomiest(self, light: int) -> int:
        """The bin of the group that takes a single item most easily."""
        if self._ceilings is None:
            return min(self._groups[light], key=self._grid.used.__getitem__)
        return max(self._groups[light], key=self._slack)

    def _apply(self, heavy: int, light: int, item: int, other: int | None, there: int) -> None:
        costs, loads, grid = self._items.costs, self._items.loads, self._grid
        home = self._bin_of[item]
        cost, load = costs[item], loads[item]
        self._carry(item, heavy, light, there)
        if other is not None:
            cost -= costs[other]
            load -= loads[other]
            self._carry(other, light, heavy, home)
        grid.used[home] -= load
        grid.used[there] += load
        grid.costs[home] -= cost
        grid.costs[there] += cost
        self._costs[heavy] -= cost
        self._costs[light] += cost

    def _carry(self, item: int, source: int, goal: int, to_bin: int) -> None:
        self._sizes[self._bin_of[item]] -= 1
        self._sizes[to_bin] += 1
        self._bin_of[item] = to_bin
        members = self._members[source]
        del members[bisect_left(members, item)]
        insort(self._members[goal], item)

    def _write_back(self) -> None:
        bins = self._grid.bins
        for b in self._sizes:
            bins[b] = []
        for members in self._members:
            for item in members:
                bins[self._bin_of[item]].append(item)
