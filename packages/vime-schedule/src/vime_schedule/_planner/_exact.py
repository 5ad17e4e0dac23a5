"""Try every plan of a few samples.

Laws
- The result is never worse than the plan given, and optimal unless the search ran out of `NODES`.
- A branch ends once what is placed costs as much as the best plan so far, since costs only grow.
"""

from __future__ import annotations

from vime_schedule._planner._grid import Grid
from vime_schedule._planner._items import Items

FEW = 12  # samples; above, the heuristics are close and the search would not end
NODES = 2000


def search_exactly(grid: Grid, items: Items, capacity: int, *, by_step: bool) -> Grid:
    """The best grid with as many rows, by the dearest rank if `by_step`, else by what the rows cost."""
    if len(items) > FEW:
        return grid
    search = _Search(grid, items, capacity, by_step)
    search.place(0)
    return Grid.of(search.best, items, grid.dp)


class _Search:
    """Depth first over the bins of every item in turn, dearest item first; the plan given is the one to beat."""

    def __init__(self, grid: Grid, items: Items, capacity: int, by_step: bool) -> None:
        self._dp = grid.dp
        self._items = items
        self._capacity = capacity
        self._by_step = by_step
        self._nodes = 0
        self._costs = list(grid.costs)
        self._least = self._value()
        self.best = [list(held) for held in grid.bins]
        self._bins: list[list[int]] = [[] for _ in grid.bins]
        self._costs = [0] * len(grid.bins)
        self._used = [0] * len(grid.bins)

    def _value(self) -> int:
        dp, costs = self._dp, self._costs
        if self._by_step:
            return max(sum(costs[rank::dp]) for rank in range(dp))
        return sum(sorted(costs, reverse=True)[::dp])

    def place(self, item: int) -> None:
        """Place `item` and all after it in every way that may beat the best plan so far."""
        self._nodes += 1
        empty = self._used.count(0)
        if self._nodes > NODES or len(self._items) - item < empty or self._value() >= self._least:
            return
        if item == len(self._items):
            self._least = self._value()
            self.best = [list(held) for held in self._bins]
            return
        load, cost = self._items.loads[item], self._items.costs[item]
        seen = set()
        for b, used in enumerate(self._used):
            state = self._state(b)
            if state in seen or (used and used + load > self._capacity):
                continue
            seen.add(state)
            self._change(b, item, load, cost)
            self.place(item + 1)
            self._change(b, None, -load, -cost)

    def _change(self, b: int, item: int | None, load: int, cost: int) -> None:
        if item is None:
            self._bins[b].pop()
        else:
            self._bins[b].append(item)
        self._used[b] += load
        self._costs[b] += cost

    def _state(self, b: int) -> tuple[int, int, tuple[tuple[int, int], ...]]:
        """What makes a bin differ from another; for the dearest rank, also the bins beside it."""
        beside: tuple[tuple[int, int], ...] = ()
        if self._by_step:
            rank = slice(b % self._dp, None, self._dp)
            beside = tuple(sorted(zip(self._costs[rank], self._used[rank], strict=True)))
        return self._costs[b], self._used[b], beside
