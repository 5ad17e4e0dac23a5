"""Batches for a forward pass alone: samples are scored, nothing is trained.

Always true: every sample is in exactly one rank's batch; the plan is one step with the forward pass's own token budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from vime_schedule import TokenBudget, build_dp_schedule
from vime_train.rollout._assemble import cut
from vime_train.rollout._plan import objective, parallel_layout

if TYPE_CHECKING:
    from vime_train.config import RunConfig
    from vime_train.rollout._batch import RankBatch
    from vime_train.rollout._samples import Sample


def forward_batches(samples: Sequence[Sample], config: RunConfig) -> tuple[RankBatch, ...]:
    """One `RankBatch` per DP rank over all samples, with advantages and weights 0."""
    batching = config.batching
    schedule = build_dp_schedule(
        [len(sample.tokens) for sample in samples],
        layout=parallel_layout(config.layout),
        batching=TokenBudget(
            max_tokens_per_gpu=batching.forward_max_tokens_per_gpu or batching.max_tokens_per_gpu,
            sequence_align=batching.sequence_align,
            pack_align=batching.pack_align,
        ),
        global_batch_size=len(samples),
        objective=objective(config),
        shortage="fill",
    )
    zeros = [np.zeros(sample.response_length, np.float32) for sample in samples]
    return cut(samples, zeros, np.zeros(len(samples)), schedule)
