"""Plan the micro-batches of a batch of rollouts: the one function most callers need."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Literal, TypeAlias

from vime_schedule._batching import Batching, FixedSize
from vime_schedule._costs import token_cost
from vime_schedule._errors import check_choice
from vime_schedule._layout import ParallelLayout
from vime_schedule._oversize import Oversize, find_oversize
from vime_schedule._planner._families import plan_families
from vime_schedule._planner._problem import Problem
from vime_schedule._planner._seats import seat_ranks
from vime_schedule._planner._step_plan import plan_step
from vime_schedule._samples import check_total_lengths, evaluate_costs, number_by_appearance
from vime_schedule._schedule import Schedule
from vime_schedule._set_cost import SetCost
from vime_schedule._steps import Remainder, cut_steps

Objective: TypeAlias = Literal["step", "lockstep", "balanced", "pipeline"]
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
    """Decide which sample runs in which micro-batch, on which DP rank, in which optimizer step.

    Policies apply in this order: oversize samples, then the cut into steps, then each step on its own.

    Args:
        total_lengths: tokens per sample, prompt and response together; whole numbers from 1 to 2**53.
        layout: how the job is cut across ranks.
        batching: what bounds one micro-batch, `TokenBudget` or `FixedSize`.
        global_batch_size: rollouts per optimizer step, or a list with the rollouts of every step, which must add up.
        rollout_ids: one hashable id per sample; samples of one rollout train in one step. None: each is its own.
        cost: cost of a sample by its length, in any unit; a `SetCost` where it depends on what shares a micro-batch.
        objective: "step" levels the ranks over the step, for jobs that meet once a step; "lockstep" levels the ranks
            at every micro-batch, for jobs that meet there (expert parallelism, FSDP); "balanced" is lockstep's plan,
            traded for step only where half a percent buys more; "pipeline" minimises the simulated makespan.
        remainder: rollouts beyond the last full step: "step" one smaller step; "spread" evenly over the full steps,
            which then train more than `global_batch_size` rollouts; "drop"; or "error".
        oversize: samples that exceed the budget alone: "alone" in a micro-batch each, even if that is all of them;
            "drop", which must leave some; or "error".
        shortage: fewer samples than micro-batches: "error", or "fill" with empty micro-batches.
        signatures: one hashable per sample, e.g. its modality; micro-batch k then has one signature on all ranks.
        micro_batch_order: "pipeline" the order with the shortest simulated pipeline (dearest first without one), or
            "longest_first", which spares the memory allocator growing.

    Returns:
        A plan that obeys the laws of this package; the same plan for the same input, anywhere.

    Raises:
        ScheduleError: if an argument is unusable, or no plan exists; the text says where, and what to do.

    >>> from vime_schedule import TokenBudget
    >>> schedule = build_dp_schedule(
    ...     [7, 3, 8, 2, 5, 5, 9, 1],
    ...     layout=ParallelLayout(dp=2),
    ...     batching=TokenBudget(max_tokens_per_gpu=10),
    ...     global_batch_size=8,
    ... )
    >>> schedule.steps[0].micro_batches
    (((4, 5), (0, 1)), ((6, 7), (2, 3)))
    """
    check_choice("objective", objective, ("step", "lockstep", "balanced", "pipeline"))
    check_choice("remainder", remainder, ("step", "spread", "drop", "error"))
    check_choice("oversize", oversize, ("alone", "drop", "error"))
    check_choice("shortage", shortage, ("error", "fill"))
    check_choice("micro_batch_order", micro_batch_order, ("pipeline", "longest_first"))
    lengths = check_total_lengths(total_lengths)
    everyone = tuple(range(len(lengths)))  # the plan shares these numbers, which saves making each several times
    rollouts = None if rollout_ids is None else number_by_appearance("rollout_ids", rollout_ids, len(lengths))
    kinds = None if signatures is None else number_by_appearance("signatures", signatures, len(lengths))
    problem = Problem(
        everyone=everyone,
        shares=batching.shares(lengths, layout.cp),
        costs=evaluate_costs(cost, lengths),
        signatures=kinds,
        capacity=batching.capacity(layout.cp),
        unit="samples" if isinstance(batching, FixedSize) else "tokens",
        layout=layout,
        objective=objective,
        fills=shortage == "fill",
        longest_first=micro_batch_order == "longest_first",
    )
    long = find_oversize(lengths, problem.shares, problem.capacity, batching, oversize)
    skipped = set(long) if oversize == "drop" else set()
    kept = [position for position in everyone if position not in skipped] if skipped else everyone
    positions, sizes, left_out = cut_steps(kept, rollouts, global_batch_size, remainder)
    if isinstance(cost, SetCost):
        steps = [plan_families(problem, cost, *step) for step in zip(range(len(sizes)), positions, sizes, strict=True)]
    else:
        steps = [plan_step(problem, *step) for step in zip(range(len(sizes)), positions, sizes, strict=True)]
    dropped = skipped.union(left_out)
    return Schedule(
        layout=layout,
        batching=batching,
        objective=objective,
        total_lengths=lengths,
        rollouts=everyone if rollouts is None else rollouts,
        signatures=kinds,
        steps=tuple(seat_ranks(steps, layout.dp) if len(steps) > 1 else steps),
        dropped=tuple(sorted(dropped)),
        oversize=tuple(position for position in long if position not in dropped),
    )
