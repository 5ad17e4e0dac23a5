"""The default rollout function: answer, and when the answer is wrong, try again with the wrong answer in sight.

Always true of the rollouts:

- those of `context.resumed` come first; then one per problem and per `rollout.rollouts_per_prompt`, in that order;
- a rollout has one sample per attempt; only the attempt's own tokens are its response;
- the reward of a rollout is the best over its attempts of `retry_reward ** (attempt - 1) * score`, with the parts of
  that attempt's reward; samples share it;
- no answer gets more than `max_new_tokens` tokens in all, nor more than `max_new_tokens_per_iteration` in one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vime_train.engine import Completion, Engine, GenerationRequest
from vime_train.rollout._drafts import Draft, draft_of, rollout_of
from vime_train.rollout._rewards import Answer
from vime_train.rollout._samples import Problem, Rollout

if TYPE_CHECKING:
    from vime_train.rollout._context import RolloutContext
    from vime_train.rollout._reward import Reward


def generate_rollouts(engine: Engine, problems: Sequence[Problem], context: RolloutContext) -> list[Rollout]:
    """Rollouts of the problems, `rollouts_per_prompt` of each, with up to `max_attempts` answers."""
    limit = context.config.rollout.max_new_tokens
    drafts = [*map(draft_of, context.resumed), *_first_drafts(problems, context)]
    pending = list(range(len(drafts)))
    while pending := [position for position in pending if _may_answer(drafts[position], context)]:
        completions = _answer([drafts[position] for position in pending], engine, context)
        for position, completion in zip(pending, completions, strict=True):
            drafts[position] = drafts[position].answered(completion, max_new_tokens=limit)
        pending = [position for position in pending if drafts[position].under_way is None]
        _score(drafts, pending, context)
    return [rollout_of(draft) for draft in drafts]


def _first_drafts(problems: Sequence[Problem], context: RolloutContext) -> list[Draft]:
    per_prompt = context.config.rollout.rollouts_per_prompt
    return [
        Draft(
            rollout_id=context.group_ids[place] * per_prompt + copy,
            group_id=context.group_ids[place],
            problem=problem,
            prompt_tokens=problem.prompt_tokens,
        )
        for place, problem in enumerate(problems)
        for copy in range(per_prompt)
    ]


def _may_answer(draft: Draft, context: RolloutContext) -> bool:
    if draft.under_way is not None:
        return True
    section = context.config.rollout
    room = context.config.max_sample_tokens - len(draft.prompt_tokens)
    return not draft.solved and draft.attempt < section.max_attempts and room >= section.max_new_tokens


def _answer(drafts: Sequence[Draft], engine: Engine, context: RolloutContext) -> list[Completion]:
    """One completion per draft; first attempts at one problem share a request, so that the engine shares the prompt."""
    requests: list[GenerationRequest] = []
    position = 0
    while position < len(drafts):
        copies = 1 if drafts[position].attempts else context.config.rollout.rollouts_per_prompt
        requests.append(_request(drafts[position], copies, context))
        position += copies
    return [completion for completions in engine.generate(requests) for completion in completions]


def _request(draft: Draft, copies: int, context: RolloutContext) -> GenerationRequest:
    """What comes next in the draft: the rest of the answer that is under way, or a new answer."""
    section = context.config.rollout
    prompt, begun = draft.prompt_tokens, draft.under_way.tokens if draft.under_way else ()
    left = section.max_new_tokens - len(begun)
    return GenerationRequest(
        prompt_tokens=prompt + begun,
        num_samples=copies,
        temperature=section.temperature,
        top_p=section.top_p,
        max_new_tokens=min(left, section.max_new_tokens_per_iteration or left),
        stop_token_ids=context.source.stop_token_ids,
        seed=context.seed_of(draft.rollout_id, draft.attempt, generated=len(begun)),
    )


def _score(drafts: list[Draft], ended: Sequence[int], context: RolloutContext) -> None:
    """Judge the newest answers, one group at a time."""
    groups: dict[int, list[int]] = {}
    for position in ended:
        groups.setdefault(drafts[position].group_id, []).append(position)
    judged = context.rewards(
        [
            (drafts[positions[0]].problem, [_text(drafts[position], context) for position in positions])
            for positions in groups.values()
        ]
    )
    for positions, rewards in zip(groups.values(), judged, strict=True):
        for position, reward in zip(positions, rewards, strict=True):
            drafts[position] = _judged(drafts[position], reward, context)


def _judged(draft: Draft, reward: Reward, context: RolloutContext) -> Draft:
    section = context.config.rollout
    newest, attempt = draft.attempts[-1], len(draft.attempts) - 1
    discounted = section.retry_reward**attempt * reward.value
    is_best = attempt == 0 or discounted > draft.reward
    return replace(
        draft,
        reward=discounted if is_best else draft.reward,
        reward_parts=reward.parts if is_best else draft.reward_parts,
        solved=reward.value >= section.solved_score,
        prompt_tokens=context.source.retry_prompt(newest.prompt_tokens, newest.tokens),
    )


def _text(draft: Draft, context: RolloutContext) -> Answer:
    newest = draft.attempts[-1]
    return Answer(text=context.source.tokenizer.decode(newest.tokens), finished=newest.status == "completed")
