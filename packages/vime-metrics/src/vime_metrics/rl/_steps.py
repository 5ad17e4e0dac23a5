"""The axes of a run: how many rollouts and how many optimizer steps were done before.

Law: both only grow, whatever number of optimizer steps each rollout had. The product of a rollout's index and its own
number of steps does not, once that number varies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Self

from vime_metrics._errors import MetricError


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCounter:
    """Rollouts and optimizer steps done so far; save it with the checkpoint.

    >>> counter = StepCounter()
    >>> for num_train_steps in (2, 1, 3):
    ...     steps = list(counter.train_steps_of(num_train_steps))
    ...     counter = counter.after_rollout(num_train_steps)
    >>> steps, counter
    ([3, 4, 5], StepCounter(rollout_step=3, train_step=6))
    """

    rollout_step: int = 0
    train_step: int = 0

    def __post_init__(self) -> None:
        if self.rollout_step < 0 or self.train_step < 0:
            raise MetricError(f"steps are counted from 0, given {self}.")

    def train_steps_of(self, num_train_steps: int) -> range:
        """The step numbers of the optimizer steps of the rollout in progress."""
        return range(self.train_step, self.train_step + num_train_steps)

    def after_rollout(self, num_train_steps: int) -> Self:
        """The counter once a rollout with that many optimizer steps is done."""
        if num_train_steps < 0:
            raise MetricError(f"a rollout has at least 0 optimizer steps, given {num_train_steps}.")
        return type(self)(rollout_step=self.rollout_step + 1, train_step=self.train_step + num_train_steps)

    def state_dict(self) -> dict[str, int]:
        """Plain numbers for a checkpoint."""
        return asdict(self)

    @classmethod
    def from_state_dict(cls, state: Mapping[str, int]) -> Self:
        """Inverse of `state_dict`."""
        return cls(**state)
