"""Advantages of a batch of rollouts, before anything is planned or cut.

Always true: they depend on rewards, groups and rollouts alone; all samples of a rollout share one advantage, and a
rollout counts once in its group however many samples it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from vime_cp import grpo_advantages

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from vime_train.config import AlgorithmSection
    from vime_train.rollout import Rollout


def advantages(rollouts: Sequence[Rollout], section: AlgorithmSection) -> tuple[npt.NDArray[np.float32], ...]:
    """One array per sample, in the order of rollouts and of samples within each, one entry per response token."""
    samples = [sample for rollout in rollouts for sample in rollout.samples]
    per_sample = grpo_advantages(
        [sample.reward for sample in samples],
        group_ids=[sample.group_id for sample in samples],
        rollout_ids=[sample.rollout_id for sample in samples],
        divide_by_std=section.divide_by_std,
    ).tolist()
    return tuple(
        np.full(sample.response_length, value, dtype=np.float32)
        for sample, value in zip(samples, per_sample, strict=True)
    )
