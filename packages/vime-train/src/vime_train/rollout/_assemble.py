"""From rollouts to what the trainers receive: advantages, the plan, the steps' weights, one batch per DP rank.

Always true:

- everything that needs the whole batch (group statistics, step weights, the plan) is computed here, once;
- rollouts of groups without variance leave the batch, and the weights of the rest are scaled by the share that they
  have in the full batch, so that the gradient is the one of the full batch, where those rollouts have advantage 0;
- the plan's fingerprint is in every rank's batch.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vime_train.rollout._advantages import batch_advantages, surviving_share
from vime_train.rollout._batch import RankBatch
from vime_train.rollout._columns import own_columns
from vime_train.rollout._groups import split_zero_variance
from vime_train.rollout._metrics import batch_metrics
from vime_train.rollout._plan import plan, step_sizes

if TYPE_CHECKING:
    import numpy.typing as npt

    from vime_metrics import Metric
    from vime_schedule import Schedule
    from vime_train.config import RunConfig
    from vime_train.rollout._samples import Rollout, Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationBatch:
    """One iteration, ready to be trained on; `schedule` is None when no group had two different rewards."""

    schedule: Schedule | None
    samples: tuple[Sample, ...]
    rank_batches: tuple[RankBatch, ...]
    metrics: dict[str, Metric]


def assemble(rollouts: Sequence[Rollout], config: RunConfig, *, iteration: int) -> IterationBatch:
    """Plan the rollouts of one iteration and cut them by DP rank; samples are shuffled by rollout, seeded."""
    from vime_train.algorithm import step_weights  # torch comes with it: `plan` and `--help` do without

    kept, dropped = split_zero_variance(rollouts) if config.rollout.drop_zero_variance else (list(rollouts), [])
    if not kept:
        return IterationBatch(
            schedule=None, samples=(), rank_batches=(), metrics=batch_metrics(rollouts, dropped, None)
        )
    random.Random(f"shuffle-{config.seed}-{iteration}").shuffle(kept)
    num_steps = -(-len(rollouts) // config.train.global_batch_size)
    samples = tuple(sample for rollout in kept for sample in rollout.samples)
    schedule = plan(samples, config, global_batch_sizes=step_sizes(len(kept), num_steps))
    weights = step_weights(schedule, samples, config.algorithm) * surviving_share(kept, rollouts, config.algorithm)
    per_sample = batch_advantages(kept, config.algorithm)
    return IterationBatch(
        schedule=schedule,
        samples=samples,
        rank_batches=cut(
            samples,
            per_sample,
            weights,
            schedule,
            step_rollouts=step_sizes(len(rollouts), len(schedule.steps)),
        ),
        metrics=batch_metrics(rollouts, dropped, schedule),
    )


def warm_up() -> None:
    """Import what the first `assemble` would import, at a time when others are being waited for anyway."""
    import vime_train.algorithm  # noqa: F401


def cut(
    samples: Sequence[Sample],
    per_sample: Sequence[npt.NDArray[np.float32]],
    weights: npt.NDArray[np.float64],
    schedule: Schedule,
    *,
    step_rollouts: Sequence[int] | None = None,
) -> tuple[RankBatch, ...]:
    """One batch per DP rank: its samples as columns, in the order of its part of the schedule.

    `step_rollouts` are the rollouts that each step stands for, where that is more than it trains on.
    """
    stands_for = step_rollouts or [step.global_batch_size for step in schedule.steps]
    mask_sums = tuple(
        sum(sum(samples[position].loss_mask) for rank in step.micro_batches for bin_ in rank for position in bin_)
        for step in schedule.steps
    )
    batches = []
    for rank in range(schedule.layout.dp):
        rank_schedule = schedule.for_rank(rank)
        mine = [samples[position] for position in rank_schedule.partition]
        batches.append(
            RankBatch(
                schedule=rank_schedule,
                fingerprint=schedule.fingerprint,
                tokens=tuple(np.asarray(sample.tokens, np.int64) for sample in mine),
                response_lengths=tuple(sample.response_length for sample in mine),
                loss_masks=tuple(np.asarray(sample.loss_mask, np.float32) for sample in mine),
                old_log_probs=tuple(np.asarray(sample.rollout_log_probs, np.float32) for sample in mine),
                advantages=tuple(per_sample[position] for position in rank_schedule.partition),
                weights=weights[list(rank_schedule.partition)],
                step_mask_sums=mask_sums,
                rewards=np.array([sample.reward for sample in mine], np.float64),
                step_rollouts=tuple(stands_for),
                columns=own_columns(mine),
            )
        )
    return tuple(batches)
