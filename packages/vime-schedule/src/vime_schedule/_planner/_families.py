"""Plan a step whose cost depends on what shares a micro-batch.

Laws
- Each step is planned twice, with families kept together as far as the capacity goes and with every sample on its own;
  the better plan by the true cost of its micro-batches is kept.
- The bounds rest on the law of `SetCost`: no plan costs less than all families whole.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from math import fsum, isfinite

from vime_schedule._errors import ScheduleError
from vime_schedule._planner._problem import Problem
from vime_schedule._planner._step_plan import plan_step
from vime_schedule._set_cost import SetCost
from vime_schedule._step import StepBounds, StepSchedule


def plan_families(
    problem: Problem, cost: SetCost, number: int, positions: Sequence[int], num_rollouts: int
) -> StepSchedule:
    """Plan step `number` with a cost of whole micro-batches."""
    alone = _restate(problem, cost, plan_step(problem, number, positions, num_rollouts), positions)
    units = _units(problem, cost, positions)
    if len(units) == len(positions) or len(units) < problem.layout.dp * alone.bounds.micro_batches:
        return alone
    together = _plan_units(problem, cost, number, units, num_rollouts)
    return min(alone, _restate(problem, cost, together, positions), key=lambda step: _value(problem, step))


def _units(problem: Problem, cost: SetCost, positions: Sequence[int]) -> list[list[int]]:
    """Families in order of first appearance, each cut where the capacity ends; signatures are not mixed."""
    open_units: dict[Hashable, list[int]] = {}
    units: list[list[int]] = []
    for position in positions:
        kind = None if problem.signatures is None else problem.signatures[position]
        family = (kind, cost.family(position))
        unit = open_units.get(family)
        if unit is None or sum(problem.shares[p] for p in unit) + problem.shares[position] > problem.capacity:
            unit = open_units[family] = []
            units.append(unit)
        unit.append(position)
    return units


def _plan_units(
    problem: Problem, cost: SetCost, number: int, units: Sequence[Sequence[int]], num_rollouts: int
) -> StepSchedule:
    whole = replace(
        problem,
        everyone=range(len(units)),
        shares=[sum(problem.shares[position] for position in unit) for unit in units],
        costs=[_cost_of(cost, unit) for unit in units],
        signatures=None if problem.signatures is None else [problem.signatures[unit[0]] for unit in units],
    )
    step = plan_step(whole, number, range(len(units)), num_rollouts)
    micro_batches = tuple(
        tuple(tuple(sorted(position for unit in held for position in units[unit])) for held in rank)
        for rank in step.micro_batches
    )
    return replace(step, micro_batches=micro_batches)


def _restate(problem: Problem, cost: SetCost, step: StepSchedule, positions: Sequence[int]) -> StepSchedule:
    """The same step with the true cost of its micro-batches, and bounds that hold for them."""
    families: dict[Hashable, list[int]] = {}
    for position in positions:
        families.setdefault(cost.family(position), []).append(position)
    least = fsum(_cost_of(cost, family) for family in families.values()) / problem.layout.dp
    return replace(
        step,
        costs=tuple(tuple(_cost_of(cost, held) for held in rank) for rank in step.micro_batches),
        bounds=StepBounds(micro_batches=step.bounds.micro_batches, step=least, lockstep=least, cheapest=0.0),
    )


def _cost_of(cost: SetCost, positions: Sequence[int]) -> float:
    if not positions:
        return 0.0
    value = float(cost.of_micro_batch(positions))
    if not isfinite(value) or value < 0:
        raise ScheduleError(
            f"the cost of a micro-batch of positions {list(positions)} is {value!r}: "
            "give a cost that is finite and at least 0."
        )
    return value


def _value(problem: Problem, step: StepSchedule) -> float:
    return max(step.rank_costs) if problem.objective == "step" else fsum(step.row_costs)
