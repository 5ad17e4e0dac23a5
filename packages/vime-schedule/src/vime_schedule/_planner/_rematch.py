"""Lower all rows at once: take one item out of many bins and put them back otherwise.

While each bin gets back at most one, what fits where is a matter of order alone: a bin takes, below the capacity and
the height of its row, every item from some rank on. So the k-th longest item finds a place if k bins take its rank, and
rows may be lowered, those with the most room first, as long as that holds for every item. Which of the bins that take
an item gets it is drawn, and each round takes other items.

Laws
- Rows together never become dearer, the capacity holds throughout, and no bin is emptied.
- The draws are the same in every run, and the work is bounded by a number of rounds (S5).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heapify, heapreplace
from itertools import accumulate
from operator import neg
from random import Random

from vime_schedule._planner._deal import sort_rows
from vime_schedule._planner._grid import Grid
from vime_schedule._planner._items import Items

ROUNDS = 24
MOVES = 12288  # items in all rounds, where they are many

Draw = Callable[[], float]


def rematch_rows(grid: Grid, items: Items, capacity: int, goal: int) -> Grid:
    """Rows that cost at most `goal` in lockstep, or as little as the rounds came to."""
    draw = Random(0).random  # of all its numbers these are promised to stay the same
    for number in range(min(ROUNDS, -(-MOVES // len(items)))):
        if grid.lockstep() <= goal:
            break
        tops, rest = grid.row_maxima(), grid.copy()
        taken = _take(rest, items, number % 4, draw)
        ranks = _lower(rest, items, taken, tops, capacity)
        if ranks is None:
            break
        _put_back(rest, items, taken, ranks, draw)
        grid = sort_rows(rest)
    return grid


def _take(grid: Grid, items: Items, turn: int, draw: Draw) -> list[int]:
    """Take an item from each bin of several: by turns the cheapest, the dearest, and twice a drawn one; all of them."""
    taken = []
    for b, held in enumerate(grid.bins):
        if len(held) > 1:
            item = max(held) if turn == 0 else min(held) if turn == 1 else held[int(draw() * len(held))]
            held.remove(item)
            grid.used[b] -= items.loads[item]
            grid.costs[b] -= items.costs[item]
            taken.append(item)
    return sorted(taken)


def _lower(rest: Grid, items: Items, taken: list[int], tops: list[int], capacity: int) -> list[int] | None:
    """Lower the rows from `tops`: for each bin the rank of the first item it then takes, None if not all fit so."""
    dp, size = rest.dp, len(taken)
    longest = accumulate([items.loads[item] for item in reversed(taken)], max)  # of the items from each rank on
    first_by_load = partial(bisect_left, list(map(neg, longest))[::-1])
    falling_costs = [-items.costs[item] for item in taken]
    first_by_cost = partial(bisect_left, falling_costs)
    ceilings = [top for top in tops for _ in range(dp)]
    ranks = list(
        map(
            max,
            map(first_by_load, [used - capacity for used in rest.used]),
            map(first_by_cost, map(int.__sub__, rest.costs, ceilings)),
        )
    )
    able = [0] * (size + 1)
    for rank in ranks:
        able[rank] += 1
    spare = [bins - needed for needed, bins in enumerate(accumulate(able[:-1]), start=1)]
    if min(spare, default=-1) < 0:
        return None
    room = [top * dp - sum(rest.costs[row * dp : row * dp + dp]) for row, top in enumerate(tops)]
    falling_costs.append(0)
    for row in sorted(range(len(tops)), key=room.__getitem__, reverse=True):
        heap = [(falling_costs[ranks[b]] - rest.costs[b], b) for b in range(row * dp, row * dp + dp)]
        heapify(heap)
        while (rank := ranks[b := heap[0][1]]) < size and spare[rank]:
            spare[rank] -= 1
            ranks[b] = rank + 1
            heapreplace(heap, (falling_costs[rank + 1] - rest.costs[b], b))
    return ranks


def _put_back(rest: Grid, items: Items, taken: list[int], ranks: Sequence[int], draw: Draw) -> None:
    """Put every item, dearest first, into a drawn bin of those that take it."""
    order = sorted(range(len(ranks)), key=ranks.__getitem__)
    able: list[int] = []
    seen = 0
    for rank, item in enumerate(taken):
        while seen < len(order) and ranks[order[seen]] <= rank:
            able.append(order[seen])
            seen += 1
        place = int(draw() * len(able))
        b, able[place] = able[place], able[-1]
        able.pop()
        rest.bins[b].append(item)
        rest.used[b] += items.loads[item]
        rest.costs[b] += items.costs[item]
