"""Rollouts in the making: what has been answered so far, and how a later iteration goes on with it.

Always true:

- tokens, log-probs and weight versions of an attempt have one entry per token, also after it was continued;
- `draft_of(rollout_of(draft))` is the draft, for every draft that is not finished.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from vime_train.rollout._samples import Problem, Rollout, Sample, Status

if TYPE_CHECKING:
    from vime_train.engine import Completion


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One answer and the prompt that it answers; `aborted` while it can go on."""

    prompt_tokens: tuple[int, ...]
    tokens: tuple[int, ...] = ()
    log_probs: tuple[float, ...] = ()
    versions: tuple[int, ...] = ()
    status: Status = "aborted"

    def continued(self, completion: Completion, *, max_new_tokens: int) -> Attempt:
        """With a completion's tokens behind its own; it has ended if the engine stopped or the limit is reached."""
        tokens = self.tokens + completion.tokens
        status: Status = "truncated" if len(tokens) >= max_new_tokens else "aborted"
        return replace(
            self,
            tokens=tokens,
            log_probs=self.log_probs + completion.log_probs,
            versions=self.versions + (completion.weight_version,) * len(completion.tokens),
            status="completed" if completion.finish_reason == "stop" else status,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A rollout in the making; `prompt_tokens` is the prompt of its next attempt."""

    rollout_id: int
    group_id: int
    problem: Problem
    prompt_tokens: tuple[int, ...]
    attempts: tuple[Attempt, ...] = ()
    reward: float = 0.0
    reward_parts: Mapping[str, float] = field(default_factory=dict)
    solved: bool = False

    @property
    def under_way(self) -> Attempt | None:
        """The attempt that was begun and has not ended."""
        return self.attempts[-1] if self.attempts and self.attempts[-1].status == "aborted" else None

    @property
    def attempt(self) -> int:
        """The number of the attempt that is to be answered now, from 0."""
        return len(self.attempts) - (self.under_way is not None)

    def answered(self, completion: Completion, *, max_new_tokens: int) -> Draft:
        """With a completion of the attempt that is under way, or else of a new one."""
        attempt = self.under_way or Attempt(prompt_tokens=self.prompt_tokens)
        continued = attempt.continued(completion, max_new_tokens=max_new_tokens)
        return replace(self, attempts=(*self.attempts[: self.attempt], continued))


def draft_of(rollout: Rollout) -> Draft:
    """The draft of an unfinished rollout."""
    attempts = tuple(_attempt_of(sample) for sample in rollout.samples)
    return Draft(
        rollout_id=rollout.rollout_id,
        group_id=rollout.group_id,
        problem=rollout.problem,
        prompt_tokens=attempts[-1].prompt_tokens,
        attempts=attempts,
        reward=rollout.reward,
        reward_parts=rollout.reward_parts,
    )


def rollout_of(draft: Draft) -> Rollout:
    """The draft as a rollout: one sample per attempt."""
    return Rollout(
        rollout_id=draft.rollout_id,
        group_id=draft.group_id,
        problem=draft.problem,
        samples=tuple(_sample_of(attempt, draft) for attempt in draft.attempts),
        reward=draft.reward,
        reward_parts=draft.reward_parts,
    )


def _attempt_of(sample: Sample) -> Attempt:
    prompt = len(sample.tokens) - sample.response_length
    return Attempt(
        prompt_tokens=sample.tokens[:prompt],
        tokens=sample.tokens[prompt:],
        log_probs=sample.rollout_log_probs,
        versions=sample.token_versions,
        status=sample.status,
    )


def _sample_of(attempt: Attempt, draft: Draft) -> Sample:
    return Sample(
        tokens=attempt.prompt_tokens + attempt.tokens,
        response_length=len(attempt.tokens),
        loss_mask=(1,) * len(attempt.tokens),
        rollout_log_probs=attempt.log_probs,
        rollout_id=draft.rollout_id,
        group_id=draft.group_id,
        reward=draft.reward,
        status=attempt.status,
        weight_version=attempt.versions[-1],
        weight_versions=attempt.versions if len(set(attempt.versions)) > 1 else (),
    )
