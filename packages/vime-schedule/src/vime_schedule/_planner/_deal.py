"""Which bin of a row runs on which rank.

Laws
- Dealing permutes bins inside their rows, so what the rows cost does not change.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from heapq import nsmallest

from vime_schedule._planner._grid import Grid

TRIES = 3  # lightest ranks offered a swap


def sort_rows(grid: Grid) -> Grid:
    """Cut the bins, dearest first, into rows: no other rows cost less in lockstep."""
    return grid.take(sorted(range(len(grid.bins)), key=grid.costs.__getitem__, reverse=True))


def deal(grid: Grid) -> Grid:
    """Row by row, give the dearest bin to the rank that has the least so far."""
    dp, costs = grid.dp, grid.costs
    load = [0] * dp
    order: list[int] = []
    for start in range(0, len(costs), dp):
        row = sorted(range(start, start + dp), key=costs.__getitem__, reverse=True)
        placed = [0] * dp
        for b, rank in zip(row, sorted(range(dp), key=load.__getitem__), strict=True):
            placed[rank] = b
            load[rank] += costs[b]
        order += placed
    return grid.take(order)


def swap_bins(grid: Grid, target: int, max_moves: int, *, across_rows: bool = False) -> None:
    """Swap bins between the dearest and a light rank while that rank costs more than `target` and it helps.

    Swaps stay inside rows unless `across_rows`, which changes what the rows cost.
    """
    dp, load = grid.dp, grid.rank_costs()
    for _ in range(max_moves):
        heavy = max(range(dp), key=load.__getitem__)
        if load[heavy] <= target:
            return
        swap = _best_swap(grid, load, heavy, across_rows)
        if swap is None:
            return
        given, taken = swap
        gained = grid.costs[given] - grid.costs[taken]
        for values in (grid.bins, grid.used, grid.costs):
            _swap(values, given, taken)
        load[heavy] -= gained
        load[taken % dp] += gained


def _best_swap(grid: Grid, load: list[int], heavy: int, across_rows: bool) -> tuple[int, int] | None:
    """The bin of the dearest rank and one of a light rank whose swap levels the two best, if any does."""
    dp, costs = grid.dp, grid.costs
    given = range(heavy, len(costs), dp)
    for light in nsmallest(TRIES, range(dp), key=load.__getitem__):
        gap = load[heavy] - load[light]
        if across_rows:
            pairs: Iterable[tuple[int, int]] = _near_pairs(costs, given, range(light, len(costs), dp), gap // 2)
        else:
            pairs = zip(given, range(light, len(costs), dp), strict=True)
        miss, best = min(((abs(2 * (costs[a] - costs[b]) - gap), (a, b)) for a, b in pairs), default=(gap, (0, 0)))
        if miss < gap:
            return best
    return None


def _near_pairs(costs: list[int], given: range, taken: range, wanted: int) -> Iterator[tuple[int, int]]:
    """For every given bin the two bins whose costs are nearest to `wanted` below its own."""
    rising = sorted(taken, key=costs.__getitem__)
    for a in given:
        at = bisect_left(rising, costs[a] - wanted, key=costs.__getitem__)
        for b in rising[max(at - 1, 0) : at + 1]:
            yield a, b


def _swap(values: list[int] | list[list[int]], a: int, b: int) -> None:
    values[a], values[b] = values[b], values[a]  # type: ignore[assignment]
