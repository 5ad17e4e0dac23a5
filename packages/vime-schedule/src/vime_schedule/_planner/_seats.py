"""Which rank takes which column of each step.

Laws
- Ranks of a step trade places as a whole, so no figure of a step changes.
- Over the steps the ranks come out even, which passes over the whole batch (log-probs) feel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vime_schedule._step import StepSchedule


def seat_ranks(steps: Sequence[StepSchedule], dp: int) -> list[StepSchedule]:
    """Step by step, give the dearest column to the rank that has the least so far."""
    load = [0.0] * dp
    return [_seat(step, load) for step in steps]


def _seat(step: StepSchedule, load: list[float]) -> StepSchedule:
    """Reorder the ranks of a step, and add what they cost to `load`."""
    costs = step.rank_costs
    columns = sorted(range(len(costs)), key=costs.__getitem__, reverse=True)
    column_of = [0] * len(costs)
    for column, rank in zip(columns, sorted(range(len(load)), key=load.__getitem__), strict=True):
        column_of[rank] = column
    for rank, column in enumerate(column_of):
        load[rank] += costs[column]
    return replace(
        step,
        micro_batches=tuple(step.micro_batches[column] for column in column_of),
        costs=tuple(step.costs[column] for column in column_of),
    )
