"""Advantages relative to the other rollouts of the same prompt: GRPO, Dr.GRPO, RLOO.

Laws
- Adding a constant to all rewards of a group changes nothing; advantages of a group's rollouts sum to 0.
- A group of one rollout, or of equal rewards, has advantage exactly 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from vime_cp._checks import check_at_least

from ._groups import like_rewards, rollout_groups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float, Num
    from torch import Tensor

    from ._groups import Ids


def grpo_advantages(
    rewards: Num[Tensor, " samples"] | Sequence[float],
    *,
    group_ids: Ids,
    rollout_ids: Ids | None = None,
    divide_by_std: bool = True,
    epsilon: float = 1e-6,
) -> Float[Tensor, " samples"]:
    """Reward minus the mean over the group's rollouts, divided by their unbiased standard deviation + ``epsilon``.

    Args:
        rewards: one per sample; samples of one rollout carry the same reward.
        group_ids: the prompt of each sample; rollouts with equal ids are compared.
        rollout_ids: the rollout of each sample; None means that every sample is a rollout of its own.
        divide_by_std: False gives Dr.GRPO's advantage.
        epsilon: added to the standard deviation.

    Returns:
        One advantage per sample, to be spread over its tokens.

    Raises:
        ValueError: rewards that are not one finite number per sample, ids of another number or None, samples of one
            rollout that differ in reward or group.

    Source: GRPO, arXiv:2402.03300, section 4.1.2; Dr.GRPO, arXiv:2503.20783, section 3.

    >>> from vime_cp import grpo_advantages
    >>> grpo_advantages([0.0, 1.0, 5.0], group_ids=["a", "a", "b"], divide_by_std=False)
    tensor([-0.5000,  0.5000,  0.0000])
    """
    where = "grpo_advantages"
    check_at_least(where, "epsilon", epsilon, 0.0)
    groups = rollout_groups(where, rewards, group_ids, rollout_ids)
    advantages = groups.deviations()
    if divide_by_std:
        freedom = (groups.sizes() - 1).clamp_min(1)
        std = (groups.group_sums(advantages.square()) / freedom).sqrt() + epsilon
        advantages = torch.where(advantages == 0, 0, advantages / std[groups.group])
    return like_rewards(advantages[groups.rollout], rewards)


def dr_grpo_advantages(
    rewards: Num[Tensor, " samples"] | Sequence[float], *, group_ids: Ids, rollout_ids: Ids | None = None
) -> Float[Tensor, " samples"]:
    """Reward minus the mean over the group's rollouts: GRPO without the division that favours easy and hard prompts.

    Its other half, a constant instead of the response length as divisor, is ``Aggregation.CONSTANT``.
    Arguments, errors and source are those of `grpo_advantages`.

    >>> from vime_cp import dr_grpo_advantages
    >>> dr_grpo_advantages([0.0, 2.0], group_ids=[7, 7])
    tensor([-1.,  1.])
    """
    return grpo_advantages(rewards, group_ids=group_ids, rollout_ids=rollout_ids, divide_by_std=False)


def rloo_advantages(
    rewards: Num[Tensor, " samples"] | Sequence[float], *, group_ids: Ids, rollout_ids: Ids | None = None
) -> Float[Tensor, " samples"]:
    """Reward minus the mean reward of the group's *other* rollouts; 0 where there is no other.

    Arguments and errors are those of `grpo_advantages`.

    Source: RLOO, arXiv:2402.14740: r_i - sum_{j != i} r_j / (n - 1) = n / (n - 1) (r_i - mean).

    >>> from vime_cp import rloo_advantages
    >>> rloo_advantages([0.0, 2.0], group_ids=[7, 7])
    tensor([-2.,  2.])
    """
    groups = rollout_groups("rloo_advantages", rewards, group_ids, rollout_ids)
    sizes = groups.sizes()[groups.group]
    advantages = groups.deviations() * sizes / (sizes - 1).clamp_min(1)
    return like_rewards(advantages[groups.rollout], rewards)
