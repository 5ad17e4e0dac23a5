"""Baselines as plans, so that the same report measures them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import fsum

from vime_schedule._baselines import arrival_first_fit, first_fit_decreasing, two_level_karmarkar_karp
from vime_schedule._baselines._problem import Ranks, StepProblem
from vime_schedule._schedule import Schedule

BASELINES: dict[str, Callable[[StepProblem], Ranks]] = {
    "first-fit": arrival_first_fit,
    "ffd": first_fit_decreasing,
    "karmarkar-karp": two_level_karmarkar_karp,
}


def baseline_plan(
    reference: Schedule, cost: Callable[[int], float], baseline: Callable[[StepProblem], Ranks]
) -> Schedule:
    """Plan the steps of `reference` again with a baseline: the same samples in the same step."""
    lengths, layout, batching = reference.total_lengths, reference.layout, reference.batching
    shares = batching.shares(lengths, layout.cp)
    costs = [float(cost(length)) for length in lengths]
    steps = []
    for step in reference.steps:
        positions = sorted(p for rank in step.micro_batches for members in rank for p in members)
        problem = StepProblem(
            positions=positions, shares=shares, costs=costs, capacity=batching.capacity(layout.cp), layout=layout
        )
        ranks = baseline(problem)
        steps.append(
            replace(
                step,
                micro_batches=tuple(tuple(map(tuple, rank)) for rank in ranks),
                costs=tuple(tuple(fsum(costs[p] for p in members) for members in rank) for rank in ranks),
            )
        )
    return replace(reference, steps=tuple(steps))


def over_budget(schedule: Schedule) -> int:
    """Count the micro-batches of two or more samples above the budget."""
    shares = schedule.batching.shares(schedule.total_lengths, schedule.layout.cp)
    capacity = schedule.batching.capacity(schedule.layout.cp)
    return sum(
        len(members) > 1 and sum(shares[p] for p in members) > capacity
        for step in schedule.steps
        for rank in step.micro_batches
        for members in rank
    )
