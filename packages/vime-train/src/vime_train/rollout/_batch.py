"""What one trainer rank receives for one iteration: its samples as columns, its part of the plan, the step's weights.

Always true of a rank batch:

- sample `i` of every column is sample `schedule.partition[i]` of the whole batch;
- `weights[i]` was computed from the whole step before the plan was cut, so that
  loss of step = sum over all ranks and samples of `weights[i] * sum_t mask[i][t] * loss[i][t]`;
- `fingerprint` names the plan; ranks that hold another one refuse to train;
- it crosses processes with one array per column (`_wire`), and comes out equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from vime_train.rollout._wire import joined, parted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    import numpy.typing as npt

    from vime_schedule import RankSchedule


@dataclass(frozen=True, slots=True, kw_only=True)
class RankBatch:
    """The samples of one data-parallel rank; every TP, PP and CP rank of the replica receives the same."""

    schedule: RankSchedule
    fingerprint: str
    tokens: tuple[npt.NDArray[np.int64], ...]
    """Prompt and response of each sample."""
    response_lengths: tuple[int, ...]
    loss_masks: tuple[npt.NDArray[np.float32], ...]
    """One entry per response token."""
    old_log_probs: tuple[npt.NDArray[np.float32], ...]
    """Log-probs under the weights that generated, one entry per response token."""
    advantages: tuple[npt.NDArray[np.float32], ...]
    """One entry per response token."""
    weights: npt.NDArray[np.float64]
    """The step's weight of each sample."""
    step_mask_sums: tuple[int, ...]
    """Per step: unmasked response tokens of the whole step, over all ranks."""
    rewards: npt.NDArray[np.float64]
    """The reward of each sample's rollout."""
    step_rollouts: tuple[int, ...]
    """Per step: the rollouts it stands for, also those that were left out; learning-rate schedules count them."""
    columns: Mapping[str, tuple[npt.NDArray[np.float32], ...]] = field(default_factory=dict)
    """One entry per response token: the columns of the samples themselves, and what the trainers add before the first
    step: `rollout_log_probs`, `reference_log_probs`, `teacher_log_probs`, `values`, `returns`."""

    def __reduce__(self) -> tuple[Callable[..., RankBatch], tuple[dict[str, Any]]]:
        """How it is pickled."""
        return _unpickled, ({one.name: joined(getattr(self, one.name)) for one in fields(self)},)


def _unpickled(columns: dict[str, Any]) -> RankBatch:
    return RankBatch(**{name: parted(value) for name, value in columns.items()})
