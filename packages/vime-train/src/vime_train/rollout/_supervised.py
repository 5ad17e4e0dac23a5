"""Batches of worked answers for the supervised part, in the same records as rollouts.

Always true: the batch of a step is a pure function of (seed, step); every answer token is trained, each with the same
weight, `1 / tokens of the batch`.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np

from vime_schedule import TokenBudget, build_dp_schedule
from vime_train.rollout._batch import RankBatch
from vime_train.rollout._plan import objective, parallel_layout

if TYPE_CHECKING:
    from vime_train.config import RunConfig
    from vime_train.data import DataSource


def supervised_batches(source: DataSource, config: RunConfig, *, step: int) -> tuple[RankBatch, ...]:
    """One `RankBatch` per DP rank for supervised step `step`, counted from 0."""
    count = config.supervised.batch_size
    rng = random.Random(f"supervised-{config.seed}-{step}")
    problems = source.problems(count, seed=config.seed + 1_000_003, start=step * count)
    remaining = config.supervised.steps - step - 1
    pairs = [source.worked_example(problem, rng, remaining_steps=remaining) for problem in problems]
    schedule = build_dp_schedule(
        [len(prompt) + len(answer) for prompt, answer in pairs],
        layout=parallel_layout(config.layout),
        batching=TokenBudget(max_tokens_per_gpu=config.batching.max_tokens_per_gpu),
        global_batch_size=count,
        objective=objective(config),
        oversize="alone",
        shortage=config.batching.shortage,
    )
    trained = sum(len(answer) for _, answer in pairs)
    batches = []
    for rank in range(config.layout.dp):
        rank_schedule = schedule.for_rank(rank)
        mine = [pairs[position] for position in rank_schedule.partition]
        lengths = tuple(len(answer) for _, answer in mine)
        zeros = tuple(np.zeros(length, np.float32) for length in lengths)
        batches.append(
            RankBatch(
                schedule=rank_schedule,
                fingerprint=schedule.fingerprint,
                tokens=tuple(np.asarray(prompt + answer, np.int64) for prompt, answer in mine),
                response_lengths=lengths,
                loss_masks=tuple(np.ones(length, np.float32) for length in lengths),
                old_log_probs=zeros,
                advantages=zeros,
                weights=np.full(len(mine), 1.0 / trained),
                step_mask_sums=(trained,),
                rewards=np.zeros(len(mine)),
                step_rollouts=(count,),
            )
        )
    return tuple(batches)
