"""Supervised training on worked answers, before the first rollout.

Always true: the batches and the learning rates are functions of the seed and of the step's number.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from vime_train.rollout import supervised_batches

if TYPE_CHECKING:
    from vime_train.cluster import Call, TrainerGroup
    from vime_train.config import RunConfig, SupervisedSection
    from vime_train.data import DataSource

_AHEAD = 4
"""Steps that wait at the trainers while the next batch is made, so that neither waits for the other."""
_FLOOR = 0.05
"""Share of the learning rate at the end of the decay."""


def learning_rate(section: SupervisedSection, step: int) -> float:
    """Linear warm-up, then a cosine to a twentieth over `decay_steps`; `step` counts from 0.

    Example:
        >>> from vime_train.config import SupervisedSection
        >>> section = SupervisedSection(lr=1.0, warmup_steps=10, decay_steps=100)
        >>> round(learning_rate(section, 99), 2)
        0.05
    """
    done = step + 1
    warmup = min(1.0, done / max(1, section.warmup_steps))
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, done / section.decay_steps)))
    return section.lr * warmup * (_FLOOR + (1 - _FLOOR) * cosine)


def train_supervised(
    trainers: TrainerGroup,
    source: DataSource,
    config: RunConfig,
    *,
    after_step: Callable[[int, dict[str, float]], None],
) -> dict[str, float]:
    """Run `supervised.steps` steps; the reduced numbers of the last one.

    `after_step` is given how many steps are done and the numbers of the last one; what it raises ends the training.
    """
    section = config.supervised
    numbers: dict[str, float] = {}
    under_way: deque[tuple[int, list[Call]]] = deque()
    for step in range(section.steps + _AHEAD):
        if step < section.steps:
            batches = supervised_batches(source, config, step=step)
            rate = learning_rate(section, step)
            calls = trainers.begin_supervised_step(batches, lr=rate, doing=f"run supervised step {step + 1}")
            under_way.append((step, calls))
        if under_way and (len(under_way) > _AHEAD or step >= section.steps):
            done, calls = under_way.popleft()
            numbers = trainers.supervised_result(calls)
            after_step(done + 1, numbers)
    return numbers
