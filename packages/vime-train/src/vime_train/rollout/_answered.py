"""A problem and one answer to it as a sample that is scored and never trained on: evaluations and probes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vime_train.rollout._samples import Problem, Sample

if TYPE_CHECKING:
    from vime_train.engine import Completion


def answered(problem: Problem, completion: Completion, *, position: int, reward: float = 0.0) -> Sample:
    """The sample of an answer; `position` stands for the ids of a rollout that there is none of."""
    return Sample(
        tokens=problem.prompt_tokens + completion.tokens,
        response_length=len(completion.tokens),
        loss_mask=(1,) * len(completion.tokens),
        rollout_log_probs=completion.log_probs,
        rollout_id=position,
        group_id=position,
        reward=reward,
        status="completed" if completion.finish_reason == "stop" else "truncated",
        weight_version=completion.weight_version,
    )
