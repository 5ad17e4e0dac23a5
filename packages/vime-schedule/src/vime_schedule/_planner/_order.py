"""In which order a rank runs its micro-batches.

Laws
- All ranks run the rows in one order, so what the rows cost in lockstep does not change.
- Without a pipeline the dearest row runs first, which spares the memory allocator growing.
- Under a pipeline cheap rows run at both ends, where the other stages wait for them; several orders are simulated and
  the best is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vime_schedule._layout import ParallelLayout
from vime_schedule._pipeline import pipeline_makespan
from vime_schedule._planner._grid import Grid

SWAPS = 400  # swaps simulated by the search; each costs one sweep of the pipeline


def rank_makespans(grid: Grid, layout: ParallelLayout) -> list[float]:
    """The simulated time of every rank."""
    return [_makespan(layout, grid.costs[rank :: grid.dp]) for rank in range(grid.dp)]


def _makespan(layout: ParallelLayout, costs: Sequence[int]) -> float:
    group = layout.group if layout.vpp > 1 else None
    return pipeline_makespan(costs, pp=layout.pp, vpp=layout.vpp, group=group)


def order_rows(grid: Grid, layout: ParallelLayout, *, longest_first: bool, search: bool) -> list[int]:
    """The rows in the order in which they run; `search` goes on from the best simple order by swaps."""
    heights = grid.row_maxima()
    falling = sorted(range(len(heights)), key=heights.__getitem__, reverse=True)
    if longest_first or layout.pp == 1:
        return falling
    rising = falling[::-1]
    orders = [rising, falling, rising[::2] + rising[1::2][::-1], [rising[0], *falling[:-1]]]
    profile = _profile(grid)

    def makespan(order: Sequence[int]) -> float:
        return max(_makespan(layout, [costs[row] for row in order]) for costs in profile)

    best = min(orders, key=makespan)
    return _search(best, makespan) if search else best


def _profile(grid: Grid) -> list[list[int]]:
    """What decides the makespan: the dearest bin of every row, and the rows of the dearest rank."""
    loads = grid.rank_costs()
    heavy = loads.index(max(loads))
    return [grid.row_maxima(), grid.costs[heavy :: grid.dp]]


def _search(order: list[int], makespan: Callable[[Sequence[int]], float]) -> list[int]:
    """Swap pairs of rows, near ones first, as long as that shortens the makespan."""
    best, least, swaps = list(order), makespan(order), 0
    distance = 1
    while distance < len(best) and swaps < SWAPS:
        improved = False
        for first in range(len(best) - distance):
            if swaps == SWAPS:
                break
            trial = list(best)
            trial[first], trial[first + distance] = trial[first + distance], trial[first]
            swaps += 1
            time = makespan(trial)
            if time < least:
                best, least, improved = trial, time, True
        distance = 1 if improved else distance + 1
    return best
