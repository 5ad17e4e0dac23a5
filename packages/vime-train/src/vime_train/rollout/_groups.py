"""Groups: all rollouts of one prompt. A group whose rewards are all equal teaches nothing relative to itself.

Always true of `split_zero_variance`: every rollout is in exactly one of the two results, order kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from vime_train.rollout._samples import Rollout


def by_group(rollouts: Sequence[Rollout]) -> dict[int, list[Rollout]]:
    """Rollouts by `group_id`, in order of first appearance."""
    groups: dict[int, list[Rollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.group_id, []).append(rollout)
    return groups


def reward_varies(group: Sequence[Rollout]) -> bool:
    """Whether two rollouts of the group have different rewards."""
    return len({rollout.reward for rollout in group}) > 1


def split_zero_variance(rollouts: Sequence[Rollout]) -> tuple[list[Rollout], list[Rollout]]:
    """Rollouts of groups with different rewards, and the rest."""
    varying = {group_id for group_id, group in by_group(rollouts).items() if reward_varies(group)}
    kept = [rollout for rollout in rollouts if rollout.group_id in varying]
    return kept, [rollout for rollout in rollouts if rollout.group_id not in varying]
