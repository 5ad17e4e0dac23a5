"""Advantages of a batch of rollouts that follow from rewards alone, before anything is planned or cut.

Always true: they depend on rewards, groups and rollouts alone; all samples of a rollout share one advantage, and a
rollout counts once in its group however many samples it has. Estimators over tokens begin here with 0, or with the
group's baseline taken from the reward; the trainers complete them (`token_advantages`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vime_cp import dr_grpo_advantages, grpo_advantages, rloo_advantages

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from vime_train.config import AlgorithmSection
    from vime_train.rollout import Rollout, Sample


def advantages(rollouts: Sequence[Rollout], section: AlgorithmSection) -> tuple[npt.NDArray[np.float32], ...]:
    """One array per sample, in the order of rollouts and of samples within each, one entry per response token."""
    samples = [sample for rollout in rollouts for sample in rollout.samples]
    return tuple(
        np.full(sample.response_length, value, dtype=np.float32)
        for sample, value in zip(samples, _per_sample(samples, section), strict=True)
    )


def _per_sample(samples: Sequence[Sample], section: AlgorithmSection) -> Sequence[float]:
    if not section.group_relative:
        return [0.0] * len(samples)
    rewards = [sample.reward for sample in samples]
    groups = [sample.group_id for sample in samples]
    ids = [sample.rollout_id for sample in samples]
    if section.advantage == "rloo":
        values = rloo_advantages(rewards, group_ids=groups, rollout_ids=ids)
    elif section.advantage == "grpo":
        values = grpo_advantages(rewards, group_ids=groups, rollout_ids=ids, divide_by_std=section.divide_by_std)
    else:
        values = dr_grpo_advantages(rewards, group_ids=groups, rollout_ids=ids)
    listed: list[float] = values.tolist()
    return listed
