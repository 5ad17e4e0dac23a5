"""The learning rate as a function of how many rollouts are done.

Always true: it does not depend on how rollouts were cut into steps; it is 1 where neither warm-up nor decay is asked
for.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vime_train.config import OptimizerSection


def learning_rate_factor(section: OptimizerSection, *, rollouts: int, total: int) -> float:
    """The share of `lr` with which the step that completes `rollouts` rollouts is taken.

    Args:
        section: the schedule.
        rollouts: done after the step, so that the first step of a warm-up moves.
        total: rollouts of the whole run, where the decay ends unless `decay_rollouts` is given.

    >>> from vime_train.config import OptimizerSection
    >>> section = OptimizerSection(lr=1.0, schedule="linear", warmup_rollouts=10, min_lr=0.1)
    >>> [learning_rate_factor(section, rollouts=done, total=110) for done in (5, 10, 60, 110, 500)]
    [0.5, 1.0, 0.55, 0.1, 0.1]
    """
    warmup = section.warmup_rollouts
    if rollouts < warmup:
        return rollouts / warmup
    if section.schedule == "constant":
        return 1.0
    end = total if section.decay_rollouts is None else section.decay_rollouts
    done = min(1.0, (rollouts - warmup) / max(1, end - warmup))
    left = 1 - done if section.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    floor = section.min_lr / section.lr
    return floor + (1 - floor) * left
