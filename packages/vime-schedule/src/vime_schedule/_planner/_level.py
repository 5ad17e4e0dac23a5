"""Make the bins of a row cost the same.

Laws
- A row never becomes dearer, and items stay in their row.
"""

from __future__ import annotations

from vime_schedule._planner._exchange import Exchange
from vime_schedule._planner._grid import Grid
from vime_schedule._planner._items import Items
from vime_schedule._planner._repartition import divide_in_two

LEVEL = 2e-4  # rows are levelled to this part of the step
TRIES = 4  # cheapest bins offered a new division with the dearest


def level_rows(grid: Grid, items: Items, capacity: int) -> None:
    """Level each row whose dearest bin stands out: by exchanging single items, then by dividing two bins anew."""
    dp, allowed = grid.dp, grid.lockstep() * LEVEL / grid.num_rows
    for start in range(0, len(grid.bins), dp):
        costs = grid.costs[start : start + dp]
        mean = sum(costs) / dp
        dearest = start + costs.index(max(costs))
        if grid.costs[dearest] - mean > allowed and len(grid.bins[dearest]) > 1:
            row = range(start, start + dp)
            target = int(mean * (1 + LEVEL))
            exchange = Exchange(grid, items, [[b] for b in row], capacity=capacity, tries=2)
            exchange.run(target, max_moves=2 * dp)
            _divide_anew(grid, items, row, capacity, target)


def _divide_anew(grid: Grid, items: Items, row: range, capacity: int, target: int) -> None:
    for _ in range(2 * len(row)):
        order = sorted(row, key=grid.costs.__getitem__)
        if grid.costs[order[-1]] <= target or not _divide_dearest(grid, items, order, capacity, target):
            return


def _divide_dearest(grid: Grid, items: Items, order: list[int], capacity: int, target: int) -> bool:
    """Divide the dearest bin and one of the cheapest anew, if that lowers the dearer of the two."""
    dearest = order[-1]
    best, lowest = None, grid.costs[dearest]
    for cheap in order[: min(TRIES, len(order) - 1)]:
        halves = divide_in_two(items, grid.bins[dearest] + grid.bins[cheap], capacity)
        if halves is not None and halves.cost < lowest:
            best, lowest = (cheap, halves), halves.cost
            if lowest <= target:
                break
    if best is None:
        return False
    cheap, halves = best
    grid.put(dearest, halves.first, items)
    grid.put(cheap, halves.second, items)
    return True
