"""The log-probs of a teacher that engines of its own serve, beside the tokens that the policy sampled.

Always true: every sample has one number per response token, in the column where the trainers look for the teacher's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vime_train.engine import ScoredSequence

if TYPE_CHECKING:
    from vime_train.cluster import TeacherPool
    from vime_train.rollout import Rollout

_COLUMN = "teacher_log_probs"


def scored_by_teacher(rollouts: Sequence[Rollout], teacher: TeacherPool) -> list[Rollout]:
    """The rollouts with the teacher's log-probs on each of their samples."""
    samples = [sample for rollout in rollouts for sample in rollout.samples]
    asked = [ScoredSequence(tokens=sample.tokens, response_length=sample.response_length) for sample in samples]
    scores = iter(teacher.log_probs(asked))
    return [
        replace(
            rollout,
            samples=tuple(
                replace(sample, columns={**sample.columns, _COLUMN: next(scores)}) for sample in rollout.samples
            ),
        )
        for rollout in rollouts
    ]
