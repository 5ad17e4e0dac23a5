"""Which bin of a row runs on which rank.

Laws
- Dealing permutes bins inside their rows, so what the rows cost does not change.
"""

from __future__ import annotations

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


def swap_bins(grid: Grid, target: int, max_moves: int) -> None:
    """Swap bins inside rows until the dearest rank costs at most `target`, nothing helps, or `max_moves` are made."""
    dp, load = grid.dp, grid.rank_costs()
    for _ in range(max_moves):
        heavy = max(range(dp), key=load.__getitem__)
        if load[heavy] <= target:
            return
        swap = _best_swap(grid, load, heavy)
        if swap is None:
            return
        start, light = swap
        gained = grid.costs[start + heavy] - grid.costs[start + light]
        for values in (grid.bins, grid.used, grid.costs):
            _swap(values, start + heavy, start + light)
        load[heavy] -= gained
        load[light] += gained


def _best_swap(grid: Grid, load: list[int], heavy: int) -> tuple[int, int] | None:
    """The row and the light rank whose swap comes nearest to half of the difference, if any gains."""
    dp, costs = grid.dp, grid.costs
    for light in nsmallest(TRIES, range(dp), key=load.__getitem__):
        gap = load[heavy] - load[light]
        gains = map(int.__sub__, costs[heavy::dp], costs[light::dp])
        miss, row = min((abs(2 * gain - gap), row) for row, gain in enumerate(gains))
        if miss < gap:
            return row * dp, light
    return None


def _swap(values: list[int] | list[list[int]], a: int, b: int) -> None:
    values[a], values[b] = values[b], values[a]  # type: ignore[assignment]
