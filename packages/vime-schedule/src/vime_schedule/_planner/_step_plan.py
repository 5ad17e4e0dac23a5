"""Plan one optimizer step: count, pack, place, order.

Laws
- A larger legal count is taken only if it lowers the objective by more than `PAYS`.
- Under objective "pipeline" rows of equal cost compete with graded ones, and the shorter simulated makespan wins;
  not where chunks are interleaved, which fill the pipeline another way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum

from vime_schedule._planner._balance import place_all
from vime_schedule._planner._bounds import step_bound
from vime_schedule._planner._count import Count, fewest_micro_batches
from vime_schedule._planner._grade import pack_graded
from vime_schedule._planner._grid import Grid
from vime_schedule._planner._items import Items, split_by_signature
from vime_schedule._planner._legal import pack_legally
from vime_schedule._planner._order import order_rows, rank_makespans
from vime_schedule._planner._problem import Problem
from vime_schedule._step import StepBounds, StepSchedule

NEAR = 0.005  # a plan this near to its bound is kept
LARGER = 3  # larger counts tried for another
PAYS = 0.004  # how much of the objective a larger count must save


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """A step planned for one count; its bins hold sample positions. `value` is to be small, `bound` is its least."""

    grid: Grid
    count: Count
    value: float
    bound: float
    step_bound: float
    lockstep_bound: float


def plan_step(problem: Problem, number: int, positions: Sequence[int], num_rollouts: int) -> StepSchedule:
    """Plan step `number`, which trains the samples at `positions`."""
    best, fewest, unit = _best_plan(problem, number, positions)
    grid = _ordered(problem, best.grid, search=problem.objective == "pipeline")
    return StepSchedule(
        micro_batches=grid.by_rank(),
        costs=tuple(
            tuple(fsum(map(problem.costs.__getitem__, held)) for held in grid.bins[rank :: grid.dp])
            for rank in range(grid.dp)
        ),
        global_batch_size=num_rollouts,
        bounds=StepBounds(
            micro_batches=fewest,
            step=best.step_bound * unit,
            lockstep=max(best.step_bound, best.lockstep_bound) * unit,
            cheapest=0.0 if [] in grid.bins else min(map(problem.costs.__getitem__, positions)),
        ),
        reasons=best.count.reasons,
    )


def _best_plan(problem: Problem, number: int, positions: Sequence[int]) -> tuple[_Plan, int, float]:
    """The plan, the fewest micro-batches per rank, and the cost of one unit of scaled cost."""
    total_cost = fsum(map(problem.costs.__getitem__, positions))
    classes = split_by_signature(problem, positions, total_cost)
    fewest = fewest_micro_batches(classes, problem.layout, problem.capacity, problem.unit)
    best = _plan(problem, number, classes, fewest)
    total = best.count.total
    for _ in range(LARGER):
        total = problem.layout.next_legal(total + 1)
        away = best.value - best.bound * (1 + NEAR)
        if away <= 0 or len(classes) > 1 or len(classes[0]) < problem.layout.dp * total:
            break
        larger = _larger(problem, number, classes, best, total)
        if larger is None and away <= best.bound * NEAR:
            break
        best = larger or best
    return best, fewest.total, total_cost / sum(items.cost_below[-1] for items in classes)


def _plan(problem: Problem, number: int, classes: Sequence[Items], count: Count) -> _Plan:
    packed, held = pack_legally(problem, number, classes, count)
    least, rows = fsum(one.bound for one in packed), sum(one.grid.lockstep() for one in packed)
    grid = place_all(problem, classes, [one.grid for one in packed])
    del packed  # its bins of items, now that there are bins of positions
    least_step = step_bound(classes, grid.dp, 1 if [] in grid.bins else grid.num_rows)
    if problem.objective == "step":
        value, bound = float(max(grid.rank_costs())), least_step
    elif problem.objective == "pipeline":  # a larger count always might pay
        grid, value = _shortest(problem, classes, grid)
        bound = 0.0
    else:
        value, bound = float(min(rows, grid.lockstep())), least  # "balanced" may have traded some of it
    return _Plan(grid=grid, count=held, value=value, bound=bound, step_bound=least_step, lockstep_bound=least)


def _shortest(problem: Problem, classes: Sequence[Items], even: Grid) -> tuple[Grid, float]:
    """The even rows or graded ones, and the simulated time of the better."""
    layout, grids = problem.layout, [even]
    if layout.pp > 1 and layout.vpp == 1 and len(classes) == 1 and not problem.even_sizes:
        graded = pack_graded(classes[0], even.dp, even.num_rows, problem.capacity, layout.pp)
        grids += [] if graded is None else [place_all(problem, classes, [graded])]
    times = [max(rank_makespans(_ordered(problem, grid, search=False), layout)) for grid in grids]
    return grids[times.index(min(times))], min(times)


def _ordered(problem: Problem, grid: Grid, *, search: bool) -> Grid:
    """The rows in the order in which they run."""
    order = order_rows(grid, problem.layout, longest_first=problem.longest_first, search=search)
    return grid.take([row * grid.dp + rank for row in order for rank in range(grid.dp)])


def _larger(problem: Problem, number: int, classes: Sequence[Items], best: _Plan, total: int) -> _Plan | None:
    """The plan with `total` micro-batches per rank, if that pays."""
    count = Count(rows=[total], total=total, reasons=best.count.reasons)
    larger = _plan(problem, number, classes, count)
    saved = 1 - larger.value / best.value
    if saved <= PAYS:
        return None
    why = f"{larger.count.total} micro-batches per rank lower the {problem.objective} cost by {saved:.1%}"
    cheaper = larger.count.because("cheaper", why, rows=larger.count.rows, total=larger.count.total)
    return replace(larger, count=cheaper)
