"""The default rollout function: answer, and when the answer is wrong, try again with the wrong answer in sight.

Always true of the rollouts:

- one per problem and per `rollout.rollouts_per_prompt`, in that order, ids counted from the context;
- a rollout has one sample per attempt; only the attempt's own tokens are its response;
- the reward of a rollout is the best over its attempts of `retry_reward ** (attempt - 1) * score`; samples share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vime_train.engine import Completion, Engine, GenerationRequest
from vime_train.rollout._rewards import Answer
from vime_train.rollout._samples import Problem, Rollout, Sample

if TYPE_CHECKING:
    from vime_train.rollout._context import RolloutContext


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """A rollout in the making."""

    rollout_id: int
    group_id: int
    problem: Problem
    prompt_tokens: tuple[int, ...]
    attempts: tuple[tuple[tuple[int, ...], Completion], ...] = ()
    reward: float = 0.0
    solved: bool = False


def generate_rollouts(engine: Engine, problems: Sequence[Problem], context: RolloutContext) -> list[Rollout]:
    """Rollouts of the problems, `rollouts_per_prompt` of each, with up to `max_attempts` answers."""
    section = context.config.rollout
    drafts = _first_drafts(problems, context)
    for attempt in range(section.max_attempts):
        pending = [position for position, draft in enumerate(drafts) if _may_answer(draft, context)]
        if not pending:
            break
        completions = _answer([drafts[position] for position in pending], attempt, engine, context)
        for position, completion in zip(pending, completions, strict=True):
            draft = drafts[position]
            drafts[position] = replace(draft, attempts=(*draft.attempts, (draft.prompt_tokens, completion)))
        _score(drafts, pending, attempt, context)
    return [_rollout(draft) for draft in drafts]


def _first_drafts(problems: Sequence[Problem], context: RolloutContext) -> list[_Draft]:
    per_prompt = context.config.rollout.rollouts_per_prompt
    return [
        _Draft(
            rollout_id=(context.first_group_id + place) * per_prompt + copy,
            group_id=context.first_group_id + place,
            problem=problem,
            prompt_tokens=problem.prompt_tokens,
        )
        for place, problem in enumerate(problems)
        for copy in range(per_prompt)
    ]


def _may_answer(draft: _Draft, context: RolloutContext) -> bool:
    room = context.config.max_sample_tokens - len(draft.prompt_tokens)
    return not draft.solved and room >= context.config.rollout.max_new_tokens


def _answer(drafts: Sequence[_Draft], attempt: int, engine: Engine, context: RolloutContext) -> list[Completion]:
    """One completion per draft; first attempts at one problem share a request, so that the engine shares the prompt."""
    section = context.config.rollout
    requests: list[GenerationRequest] = []
    position = 0
    while position < len(drafts):
        draft = drafts[position]
        copies = section.rollouts_per_prompt if attempt == 0 else 1
        requests.append(
            GenerationRequest(
                prompt_tokens=draft.prompt_tokens,
                num_samples=copies,
                temperature=section.temperature,
                top_p=section.top_p,
                max_new_tokens=section.max_new_tokens,
                stop_token_ids=context.source.stop_token_ids,
                seed=context.seed_of(draft.rollout_id, attempt),
            )
        )
        position += copies
    return [completion for completions in engine.generate(requests) for completion in completions]


def _score(drafts: list[_Draft], pending: Sequence[int], attempt: int, context: RolloutContext) -> None:
    """Judge the newest answers, one group at a time."""
    section = context.config.rollout
    groups: dict[int, list[int]] = {}
    for position in pending:
        groups.setdefault(drafts[position].group_id, []).append(position)
    judged = context.rewards(
        [
            (drafts[positions[0]].problem, [_text(drafts[position], context) for position in positions])
            for positions in groups.values()
        ]
    )
    for positions, scores in zip(groups.values(), judged, strict=True):
        for position, score in zip(positions, scores, strict=True):
            draft = drafts[position]
            prompt, completion = draft.attempts[-1]
            discounted = section.retry_reward**attempt * score
            drafts[position] = replace(
                draft,
                reward=discounted if attempt == 0 else max(draft.reward, discounted),
                solved=score >= section.solved_score,
                prompt_tokens=context.source.retry_prompt(prompt, completion.tokens),
            )


def _text(draft: _Draft, context: RolloutContext) -> Answer:
    completion = draft.attempts[-1][1]
    return Answer(text=context.source.tokenizer.decode(completion.tokens), finished=completion.finish_reason == "stop")


def _rollout(draft: _Draft) -> Rollout:
    samples = tuple(
        Sample(
            tokens=prompt + completion.tokens,
            response_length=len(completion.tokens),
            loss_mask=(1,) * len(completion.tokens),
            rollout_log_probs=completion.log_probs,
            rollout_id=draft.rollout_id,
            group_id=draft.group_id,
            reward=draft.reward,
            status="completed" if completion.finish_reason == "stop" else "truncated",
            weight_version=completion.weight_version,
        )
        for prompt, completion in draft.attempts
    )
    return Rollout(
        rollout_id=draft.rollout_id,
        group_id=draft.group_id,
        problem=draft.problem,
        samples=samples,
        reward=draft.reward,
    )
