"""What a rollout function is told besides its problems. No torch.

Always true: the seed of an answer depends on the run's seed, the rollout's id and the attempt alone, so a batch that is
generated again, whole or in parts, is the same batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vime_train.rollout._rewards import score_groups

if TYPE_CHECKING:
    from vime_train.config import RunConfig
    from vime_train.data import DataSource
    from vime_train.rollout._rewards import Answer, GroupReward
    from vime_train.rollout._samples import Problem

_MULTIPLIER = 6364136223846793005
_MASK = 2**64 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutContext:
    """The run's configuration, its data source and its reward; groups are counted from `first_group_id`."""

    config: RunConfig
    source: DataSource
    reward: GroupReward
    first_group_id: int

    def rewards(self, groups: Sequence[tuple[Problem, Sequence[Answer]]]) -> list[list[float]]:
        """Rewards of several problems' answers; a reward server is asked for several problems at once."""
        return score_groups(self.reward, groups, self.config.rollout)

    def seed_of(self, rollout_id: int, attempt: int) -> int:
        """Sampling seed of one answer: a 31-bit hash of (run seed, rollout id, attempt)."""
        state = 0
        for part in (self.config.seed, rollout_id, attempt):
            state = ((state ^ part) * _MULTIPLIER + 1442695040888963407) & _MASK
            state ^= state >> 29
        return state >> 33
