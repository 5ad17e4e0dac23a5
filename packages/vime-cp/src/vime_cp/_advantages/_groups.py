"""Rewards of rollouts, indexed by the group of rollouts (one prompt) that they are compared with.

Laws
- Groups may be ragged and interleaved; only ids decide who is compared with whom.
- A rollout has one reward and counts once, however many samples it was cut into; its samples share its advantage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from jaxtyping import Float, Float64, Int64, Num
    from torch import Tensor

    Ids = Sequence[Hashable] | Int64[Tensor, " samples"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutGroups:
    """Rewards per rollout, and how rollouts form groups and samples form rollouts.

    Attributes:
        rewards: reward of each rollout.
        group: group of each rollout.
        rollout: rollout of each sample.
        num_groups: number of groups.
    """

    rewards: Float64[Tensor, " rollouts"]
    group: Int64[Tensor, " rollouts"]
    rollout: Int64[Tensor, " samples"]
    num_groups: int

    def group_sums(self, values: Float64[Tensor, " rollouts"]) -> Float64[Tensor, " groups"]:
        """Sum over the rollouts of every group."""
        return values.new_zeros(self.num_groups).index_add(0, self.group, values)

    def sizes(self) -> Float64[Tensor, " groups"]:
        """Rollouts in every group."""
        return self.group_sums(torch.ones_like(self.rewards))

    def deviations(self) -> Float64[Tensor, " rollouts"]:
        """Reward minus the group's mean; exactly 0 where all rewards of a group are equal."""
        above = self.rewards - _least(self.rewards, self.group, self.num_groups)[self.group]
        return above - (self.group_sums(above) / self.sizes())[self.group]


def rollout_groups(
    where: str, rewards: Num[Tensor, " samples"] | Sequence[float], group_ids: Ids, rollout_ids: Ids | None
) -> RolloutGroups:
    """Index samples by rollout and rollouts by group.

    Raises:
        ValueError: rewards that are not one finite number per sample, ids of another number or None, a rollout whose
            samples differ in reward or group.
    """
    values = torch.as_tensor(rewards)
    if values.dim() != 1:
        raise ValueError(f"{where}: rewards has shape {tuple(values.shape)}: give one number per sample, [samples]")
    values = values.detach().to(torch.float64)
    _check_finite(where, values)
    num_samples = len(values)
    group = number_ids(where, "group_ids", group_ids, num_samples).to(values.device)
    rollout = torch.arange(num_samples, device=values.device)
    if rollout_ids is not None:
        rollout = number_ids(where, "rollout_ids", rollout_ids, num_samples).to(values.device)
    num_rollouts = int(rollout.max()) + 1 if num_samples else 0
    rollout_rewards = _least(values, rollout, num_rollouts)
    rollout_group = _least(group, rollout, num_rollouts)
    _check_siblings(where, "reward", values, rollout_rewards[rollout])
    _check_siblings(where, "group id", group, rollout_group[rollout])
    num_groups = int(group.max()) + 1 if num_samples else 0
    return RolloutGroups(rewards=rollout_rewards, group=rollout_group, rollout=rollout, num_groups=num_groups)


def number_ids(where: str, name: str, ids: Ids, count: int) -> Int64[Tensor, " samples"]:
    """Ids as consecutive integers, in order of first appearance."""
    listed = ids.tolist() if isinstance(ids, torch.Tensor) else list(ids)
    if len(listed) != count:
        raise ValueError(f"{where}: {name} has {len(listed)} entries for {count} samples: give one id per sample")
    missing = [position for position, value in enumerate(listed) if value is None]
    if missing:
        raise ValueError(f"{where}: {name} is None at positions {missing[:8]}: give every sample an id")
    first: dict[Hashable, int] = {}
    return torch.tensor([first.setdefault(value, len(first)) for value in listed], dtype=torch.int64)


def like_rewards(
    advantages: Float64[Tensor, " samples"], rewards: Tensor | Sequence[float]
) -> Float[Tensor, " samples"]:
    """Advantages in the dtype of the rewards, at least fp32."""
    dtype = rewards.dtype if isinstance(rewards, torch.Tensor) and rewards.is_floating_point() else torch.float32
    return advantages.to(torch.promote_types(dtype, torch.float32))


def _least(values: Tensor, unit: Tensor, num_units: int) -> Tensor:
    """The smallest value of every unit."""
    return values.new_zeros(num_units).scatter_reduce(0, unit, values, "amin", include_self=False)


def _check_finite(where: str, values: Tensor) -> None:
    wrong = (~torch.isfinite(values)).nonzero().flatten().tolist()
    if wrong:
        raise ValueError(
            f"{where}: rewards is not finite at positions {wrong[:8]}, {values[wrong[0]].item()} at the first: "
            f"give every rollout a finite reward, or leave the rollout out"
        )


def _check_siblings(where: str, what: str, given: Tensor, of_rollout: Tensor) -> None:
    wrong = (given != of_rollout).nonzero().flatten().tolist()
    if wrong:
        first = wrong[0]
        raise ValueError(
            f"{where}: the sample at position {first} has {what} {given[first].item()} but another sample of its "
            f"rollout has {of_rollout[first].item()}: give all samples of one rollout_id the same {what}"
        )
