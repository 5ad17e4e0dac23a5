"""What an iteration did not train on and the next one goes on with: unfinished groups, and finished ones beyond need.

Always true:

- a group that enters leaves by `take`, or because the group filter rejects it when it has finished: none is lost;
- finished groups are taken in the order in which they entered, whenever they finished, unless the run has an order of
  its own;
- loaded again, it is the same buffer, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vime_train.rollout._dump import load_rollouts, save_rollouts
from vime_train.rollout._groups import by_group
from vime_train.rollout._samples import Rollout

Group = tuple[Rollout, ...]
Order = Callable[[Sequence[Group]], list[Group]]
"""All of the groups again, those to train on first at the front."""


def is_finished(group: Sequence[Rollout]) -> bool:
    """Whether every rollout of the group is finished."""
    return all(rollout.is_finished for rollout in group)


@dataclass(frozen=True, slots=True)
class GroupBuffer:
    """Groups in the order in which they entered."""

    groups: tuple[Group, ...] = ()

    @classmethod
    def load(cls, directory: str | Path) -> Self:
        """Read what `save` wrote; raises `DumpError` if it is missing or damaged."""
        return cls(tuple(tuple(group) for group in by_group(load_rollouts(directory)).values()))

    def save(self, directory: str | Path) -> None:
        """Write the rollouts as `save_rollouts` does."""
        save_rollouts([rollout for group in self.groups for rollout in group], directory)

    @property
    def unfinished(self) -> tuple[Rollout, ...]:
        """The rollouts to go on with; their finished siblings wait."""
        return tuple(rollout for group in self.groups for rollout in group if not rollout.is_finished)

    @property
    def ready(self) -> int:
        """How many groups are finished."""
        return sum(is_finished(group) for group in self.groups)

    def merged(self, rollouts: Sequence[Rollout]) -> Self:
        """With newer rollouts in the place of those of the same id, and new groups at the end."""
        newer = {rollout.rollout_id: rollout for rollout in rollouts}
        known = {group[0].group_id for group in self.groups}
        updated = (tuple(newer.get(rollout.rollout_id, rollout) for rollout in group) for group in self.groups)
        added = (tuple(group) for group_id, group in by_group(rollouts).items() if group_id not in known)
        return type(self)((*updated, *added))

    def without(self, group_ids: Collection[int]) -> Self:
        """Without some groups."""
        return type(self)(tuple(group for group in self.groups if group[0].group_id not in group_ids))

    def take(self, count: int, *, order: Order = list) -> tuple[list[Group], Self]:
        """The first `count` finished groups, or all where there are fewer; and the buffer without them."""
        taken = order([group for group in self.groups if is_finished(group)])[:count]
        return taken, self.without({group[0].group_id for group in taken})
