"""What a rollout function is told besides its problems. No torch.

Always true: the seed of an answer depends on the run's seed, the rollout's id, the attempt and the tokens that it has
already alone, so a batch that is generated again, whole or in parts, is the same batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vime_train.rollout._rewards import score_groups

if TYPE_CHECKING:
    from vime_train.config import RunConfig
    from vime_train.data import DataSource
    from vime_train.rollout._reward import Reward
    from vime_train.rollout._rewards import Answer, GroupReward
    from vime_train.rollout._samples import Problem, Rollout

_MULTIPLIER = 6364136223846793005
_MASK = 2**64 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutContext:
    """The run's configuration, its data source and its reward; `group_ids` are those of the problems, in their order.

    `resumed` are rollouts that an earlier iteration left unfinished (`rollout.partial_rollout`). A rollout function
    goes on with their aborted samples and returns them, under their ids, with those of the problems; what it leaves
    aborted again comes back in the next iteration.
    """

    config: RunConfig
    source: DataSource
    reward: GroupReward
    group_ids: tuple[int, ...]
    resumed: tuple[Rollout, ...] = ()

    def rewards(self, groups: Sequence[tuple[Problem, Sequence[Answer]]]) -> list[list[Reward]]:
        """Rewards of several problems' answers; a reward server is asked for several problems at once."""
        return score_groups(self.reward, groups, self.config.rollout)

    def seed_of(self, rollout_id: int, attempt: int, *, generated: int = 0) -> int:
        """Sampling seed of an answer, or of what follows its first `generated` tokens: a 31-bit hash."""
        state = 0
        for part in (self.config.seed, rollout_id, attempt, *([generated] if generated else [])):
            state = ((state ^ part) * _MULTIPLIER + 1442695040888963407) & _MASK
            state ^= state >> 29
        return state >> 33
