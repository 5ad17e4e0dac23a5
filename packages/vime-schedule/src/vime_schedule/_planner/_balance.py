"""Place packed rows on ranks, for the objective asked for.

Laws
- "lockstep" keeps what the rows cost; dealing them levels the ranks as far as that goes.
- "step" levels the ranks, whatever that does to the rows.
- "balanced" is lockstep's plan, unless up to `BUYS` of the rows' cost buys more than it costs in the dearest rank.
"""

from __future__ import annotations

from collections.abc import Sequence

from vime_schedule._errors import ScheduleError
from vime_schedule._planner._deal import deal, sort_rows, swap_bins
from vime_schedule._planner._exact import FEW, search_exactly
from vime_schedule._planner._exchange import Exchange
from vime_schedule._planner._grid import Grid
from vime_schedule._planner._items import Items
from vime_schedule._planner._legal import class_capacity
from vime_schedule._planner._lpt import fill_cheapest
from vime_schedule._planner._problem import Problem

EVEN = 4e-5  # ranks are level when the dearest is within this part of the ideal
BUYS = 0.005  # what "balanced" may pay in lockstep, and the imbalance it leaves alone
TRIES = 3  # lightest ranks offered an exchange
MOVES = 20  # per rank


def place_all(problem: Problem, classes: Sequence[Items], packed: Sequence[Grid]) -> Grid:
    """Place the rows of every signature; the bins of the result hold sample positions."""
    whole: Grid | None = None
    for items, grid in zip(classes, packed, strict=True):
        capacity = class_capacity(problem, items, grid.num_rows)
        placed = _place(grid, items, capacity, problem.objective).renamed(items.positions)
        whole = placed if whole is None else whole + placed
    if whole is None:
        raise ScheduleError("a step without samples cannot be planned: give it at least one rollout.")
    if len(classes) > 1 and problem.objective != "step":
        whole = deal(whole)
        swap_bins(whole, sum(whole.costs) // whole.dp, 2 * whole.dp)
    return whole


def _place(packed: Grid, items: Items, capacity: int, objective: str) -> Grid:
    """Deal packed rows to ranks and level the ranks."""
    by_step = objective == "step"
    if not by_step and len(items) <= FEW:
        packed = sort_rows(search_exactly(packed, items, capacity, by_step=False))
    grid = deal(packed)
    ideal = max(sum(grid.costs) // grid.dp, max(items.costs))
    even = int(ideal * (1 + EVEN))
    if by_step:
        _level_fully(grid, items, capacity, even)
        by_rank = (
            None if max(grid.rank_costs()) <= even else _spread_over_ranks(items, grid.dp, grid.num_rows, capacity)
        )
        if by_rank is not None:
            _level_fully(by_rank, items, capacity, even)
            grid = min(grid, by_rank, key=lambda one: max(one.rank_costs()))
        return search_exactly(grid, items, capacity, by_step=True)
    swap_bins(grid, even, 2 * grid.dp)
    if max(grid.rank_costs()) <= even:
        return grid
    if objective == "balanced" and max(grid.rank_costs()) > ideal * (1 + BUYS):
        return _trade(grid, items, capacity, int(ideal * (1 + BUYS)))
    return grid


def _level_fully(grid: Grid, items: Items, capacity: int, even: int) -> None:
    """Level the ranks by items, then by bins, then by items again."""
    _level_ranks(grid, items, capacity, even, None)
    swap_bins(grid, even, 2 * grid.dp, across_rows=True)
    _level_ranks(grid, items, capacity, even, None)


def _spread_over_ranks(items: Items, dp: int, num_rows: int, capacity: int) -> Grid | None:
    """Spread the items evenly over ranks, and those of each rank over its bins; None if they do not fit so.

    The cheapest go one to a bin, so that no bin is empty, except for the first bin of each rank.
    """
    size = len(items) - dp * (num_rows - 1)
    ranks = fill_cheapest(items, items.indices[:size], dp, 1, capacity * num_rows)
    if ranks is None:
        return None
    bins: list[list[list[int]]] = []
    for rank, held in enumerate(ranks.bins):
        spread = fill_cheapest(items, sorted([*held, *items.indices[size + rank :: dp]]), 1, num_rows, capacity)
        if spread is None:
            return None
        bins.append(spread.bins)
    return Grid.of([of_rank[row] for row in range(num_rows) for of_rank in bins], items, dp)


def _trade(grid: Grid, items: Items, capacity: int, target: int) -> Grid:
    """Let rows rise by `BUYS` in total if the dearest rank falls by more."""
    traded = grid.copy()
    _level_ranks(traded, items, capacity, target, _row_ceilings(grid, int(grid.lockstep() * BUYS)))
    paid = traded.lockstep() - grid.lockstep()
    bought = max(grid.rank_costs()) - max(traded.rank_costs())
    return traded if bought > paid else grid


def _level_ranks(grid: Grid, items: Items, capacity: int, target: int, ceilings: list[int] | None) -> None:
    ranks = [range(rank, len(grid.bins), grid.dp) for rank in range(grid.dp)]
    exchange = Exchange(grid, items, ranks, ceilings=ceilings, capacity=capacity, tries=TRIES)
    exchange.run(target, max_moves=MOVES * grid.dp)


def _row_ceilings(grid: Grid, more: int) -> list[int]:
    """The most that each bin may cost when the rows together may rise by `more`; a row under a lone sample stays."""
    dp, rows = grid.dp, grid.row_maxima()
    dearest = [grid.costs.index(cost, row * dp) for row, cost in enumerate(rows)]
    may_rise = [len(grid.bins[b]) > 1 for b in dearest]
    rise = more // max(1, sum(may_rise))
    return [cost + rise * rises for cost, rises in zip(rows, may_rise, strict=True) for _ in range(dp)]
