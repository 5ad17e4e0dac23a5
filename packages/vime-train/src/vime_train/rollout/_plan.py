"""The plan of one iteration: how many rollouts each optimizer step takes, and which sample runs where.

Always true of `step_sizes(n, steps)`: they sum to `n`, differ by at most one, and none is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from vime_schedule import ParallelLayout, Schedule, TokenBudget, build_dp_schedule

if TYPE_CHECKING:
    from vime_train.config import LayoutSection, RunConfig
    from vime_train.rollout._samples import Sample


def parallel_layout(section: LayoutSection) -> ParallelLayout:
    """The layout as the planner names it."""
    return ParallelLayout(
        dp=section.dp,
        cp=section.cp,
        tp=section.tp,
        pp=section.pp,
        vpp=section.vpp,
        microbatch_group_size_per_vp_stage=section.microbatch_group_size_per_vp_stage,
    )


def objective(config: RunConfig) -> Literal["step", "lockstep", "balanced", "pipeline"]:
    """What the plan is to be good at: as configured, or lockstep where ranks meet in every layer of experts."""
    return config.batching.objective or ("lockstep" if config.layout.ep > 1 else "balanced")


def step_sizes(num_rollouts: int, num_steps: int) -> list[int]:
    """Rollouts per optimizer step, spread evenly; fewer steps when there are fewer rollouts than steps.

    >>> step_sizes(10, 4), step_sizes(2, 4)
    ([3, 3, 2, 2], [1, 1])
    """
    steps = min(num_rollouts, num_steps)
    if steps == 0:
        return []
    size, larger = divmod(num_rollouts, steps)
    return [size + (step < larger) for step in range(steps)]


def plan(samples: Sequence[Sample], config: RunConfig, *, global_batch_sizes: Sequence[int]) -> Schedule:
    """The schedule of all samples over the DP ranks, made once for the whole batch."""
    return plan_lengths(
        [len(sample.tokens) for sample in samples],
        config,
        global_batch_sizes=global_batch_sizes,
        rollout_ids=[sample.rollout_id for sample in samples],
    )


def plan_lengths(
    lengths: Sequence[int],
    config: RunConfig,
    *,
    global_batch_sizes: Sequence[int],
    rollout_ids: Sequence[int] | None = None,
) -> Schedule:
    """The schedule of samples of these lengths, in tokens; without ids every sample is a rollout of its own."""
    return build_dp_schedule(
        lengths,
        layout=parallel_layout(config.layout),
        batching=TokenBudget(
            max_tokens_per_gpu=config.batching.max_tokens_per_gpu,
            sequence_align=config.batching.sequence_align,
            pack_align=config.batching.pack_align,
        ),
        global_batch_size=list(global_batch_sizes),
        rollout_ids=rollout_ids,
        objective=objective(config),
        oversize=config.batching.oversize,
        shortage=config.batching.shortage,
    )
