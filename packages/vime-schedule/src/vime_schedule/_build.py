"""Plan the micro-batches of a batch of rollouts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Literal, TypeAlias

from vime_schedule._batching import Batching, FixedSize
from vime_schedule._costs import token_cost
from vime_schedule._errors import ScheduleError, check_choice
from vime_schedule._layout import ParallelLayout
from vime_schedule._planner._problem import Problem
from vime_schedule._planner._step_plan import plan_step
from vime_schedule._samples import check_total_lengths, evaluate_costs, number_by_appearance
from vime_schedule._schedule import Schedule
from vime_schedule._steps import Remainder, cut_steps

Objective: TypeAlias = Literal["step", "lockstep", "balanced", "pipeline"]
Oversize: TypeAlias = Literal["alone", "drop", "error"]
Shortage: TypeAlias = Literal["error", "fill"]
MicroBatchOrder: TypeAlias = Literal["pipeline", "longest_first"]


def build_dp_schedule(
    total_lengths: Sequence[int],
    *,
    layout: ParallelLayout,
    batching: Batching,
    global_batch_size: int | Sequence[int],
    rollout_ids: Sequence[Hashable] | None = None,
    cost: Callable[[int], float] = token_cost,
    objective: Objective = "balanced",
    remainder: Remainder = "step",
    oversize: Oversize = "alone",
    shortage: Shortage = "error",
    signatures: Sequence[Hashable] | None = None,
    micro_batch_order: MicroBatchOrder = "pipeline",
) -> Schedule:
    """Plan."""
    check_choice("objective", objective, ("step", "lockstep", "balanced", "pipeline"))
    check_choice("remainder", remainder, ("step", "spread", "drop", "error"))
    check_choice("oversize", oversize, ("alone", "drop", "error"))
    check_choice("shortage", shortage, ("error", "fill"))
    check_choice("micro_batch_order", micro_batch_order, ("pipeline", "longest_first"))
    lengths = check_total_lengths(total_lengths)
    everyone = range(len(lengths))
    rollouts = None if rollout_ids is None else number_by_appearance("rollout_ids", rollout_ids, len(lengths))
    kinds = None if signatures is None else number_by_appearance("signatures", signatures, len(lengths))
    costs = evaluate_costs(cost, lengths)
    shares = batching.shares(lengths, layout.cp)
    capacity = batching.capacity(layout.cp)
    long = [position for position, share in enumerate(shares) if share > capacity]
    if len(long) == len(lengths):
        raise ScheduleError(f"{batching} is below every sample: raise the budget to at least {min(shares)}.")
    if long and oversize == "error":
        raise ScheduleError(f"sample {long[0]} of {lengths[long[0]]} tokens exceeds {batching}: raise the budget.")
    dropped = long if oversize == "drop" else []
    gone = set(dropped)
    kept = [position for position in everyone if position not in gone] if gone else everyone
    steps, sizes, left_out = cut_steps(kept, rollouts, global_batch_size, remainder)
    problem = Problem(
        shares=shares,
        costs=costs,
        signatures=kinds,
        capacity=capacity,
        unit="samples" if isinstance(batching, FixedSize) else "tokens",
        layout=layout,
        objective=objective,
        fills=shortage == "fill",
        longest_first=micro_batch_order == "longest_first",
    )
    planned = [
        plan_step(problem, number, positions, size)
        for number, (positions, size) in enumerate(zip(steps, sizes, strict=True))
    ]
    out = {*dropped, *left_out}
    return Schedule(
        layout=layout,
        batching=batching,
        objective=objective,
        total_lengths=lengths,
        rollouts=tuple(everyone) if rollouts is None else rollouts,
        signatures=kinds,
        steps=tuple(planned),
        dropped=tuple(sorted(out)),
        oversize=tuple(position for position in long if position not in out),
    )
