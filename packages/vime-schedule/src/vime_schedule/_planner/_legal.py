"""Pack a step into the smallest legal number of micro-batches that holds it.

Laws
- The count is raised only where no packing was found at the count before, and the reason is recorded.
- Fillers appear only where the caller asked for them and a signature has fewer samples than its rows have bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vime_schedule._errors import ScheduleError
from vime_schedule._planner._count import Count, check_enough, make_legal
from vime_schedule._planner._fewer import pack_fewer_rows
from vime_schedule._planner._grid import Grid
from vime_schedule._planner._heights import RowHeights
from vime_schedule._planner._items import Items
from vime_schedule._planner._pack import pack_rows
from vime_schedule._planner._peel import count_first_fit
from vime_schedule._planner._problem import Problem

CLOSE = 0.0045  # rows this near to their bound are not packed into fewer


class Packed(NamedTuple):
    """The rows of one signature, and what no rows cost less than in lockstep."""

    grid: Grid
    bound: float


def pack_legally(problem: Problem, step: int, classes: Sequence[Items], count: Count) -> tuple[list[Packed], Count]:
    """Rows of bins for each signature, and the count that held them."""
    while True:
        if not problem.fills:
            check_enough(step, sum(map(len, classes)), count, problem.layout)
        rows = _share_out(problem, step, classes, count)
        packings = []
        for number, items in enumerate(classes):
            packed = pack_class(problem, items, rows[number])
            if packed is None:
                count = _one_more(problem, count, rows, number, items)
                break
            packings.append(packed)
        else:
            return packings, count


def pack_class(problem: Problem, items: Items, num_rows: int) -> Packed | None:
    """Pack one signature into `num_rows` rows, with fillers where it has too few samples."""
    dp = problem.layout.dp
    capacity = class_capacity(problem, items, num_rows)
    heights = RowHeights(items, dp, num_rows, problem.capacity)
    if len(items) >= dp * num_rows:
        grid = pack_rows(items, dp, num_rows, capacity, heights, by_step=problem.objective == "step")
        close = int(heights.bound * (1 + CLOSE))
        if grid is not None and grid.lockstep() > close and problem.objective in ("lockstep", "balanced"):
            fewer = pack_fewer_rows(items, dp, num_rows, capacity)
            grid = grid if fewer is None else min(grid, fewer, key=Grid.lockstep)
        return None if grid is None else Packed(grid, heights.bound)
    if not problem.fills:
        return None
    full = len(items) // dp
    together = pack_rows(items, dp, full, capacity, RowHeights(items, dp, full, capacity)) if full else None
    alone = Grid.of([[item] for item in range(len(items))], items, dp).padded(num_rows)
    if together is not None and together.lockstep() < alone.lockstep():
        return Packed(together.padded(num_rows), heights.bound)
    return Packed(alone, heights.bound)


def class_capacity(problem: Problem, items: Items, num_rows: int) -> int:
    """The most load of a bin; a fixed size asks for no more samples than spread evenly over the bins."""
    if problem.even_sizes:
        return min(problem.capacity, -(-len(items) // (problem.layout.dp * num_rows)))
    return problem.capacity


def _one_more(problem: Problem, count: Count, rows: list[int], number: int, items: Items) -> Count:
    """The count that first-fit decreasing needs for the signature that did not fit."""
    more = [*rows]
    more[number] = max(rows[number] + 1, -(-count_first_fit(items, problem.capacity) // problem.layout.dp))
    why = f"no packing into {rows[number]} micro-batches per rank was found within the budget"
    return make_legal(count.because("packing", why, rows=more, total=sum(more)), problem.layout)


def _share_out(problem: Problem, step: int, classes: Sequence[Items], count: Count) -> list[int]:
    """Rows of each signature when the count is larger than they need: one by one to the dearest rows."""
    dp, rows = problem.layout.dp, list(count.rows)
    for number, items in enumerate(classes):
        if len(items) < dp * rows[number] and not problem.fills:
            raise ScheduleError(
                f"step {step} has {len(items)} samples of signature {number} but needs at least {dp * rows[number]} "
                f"for {rows[number]} micro-batches on each of dp={dp} ranks: add samples of that signature, lower "
                "`dp`, or choose shortage='fill'."
            )
    for _ in range(count.total - sum(rows)):
        able = [number for number, items in enumerate(classes) if len(items) >= dp * (rows[number] + 1)]
        if not able and not problem.fills:
            raise ScheduleError(
                f"step {step} needs {count.total} micro-batches per rank ({problem.layout}) but its signatures have "
                f"samples for {sum(rows)}: add samples, lower `dp`, or choose shortage='fill'."
            )
        dearest = max(able or range(len(classes)), key=lambda number: sum(classes[number].costs) / rows[number])
        rows[dearest] += 1
    return rows
