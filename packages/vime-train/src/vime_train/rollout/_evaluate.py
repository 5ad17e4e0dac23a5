"""Greedy accuracy on problems that are never trained on.

Always true: one first attempt per problem, at temperature 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vime_train.engine import GenerationRequest
from vime_train.rollout._answered import answered
from vime_train.rollout._rewards import Answer, load_reward, score_groups

if TYPE_CHECKING:
    from vime_train.config import RunConfig
    from vime_train.data import DataSource
    from vime_train.engine import Engine
    from vime_train.rollout._samples import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Mean score of greedy answers, how many there were, and their mean length in tokens."""

    accuracy: float
    problems: int
    mean_length: float
    samples: tuple[Sample, ...]


def evaluate(engine: Engine, source: DataSource, config: RunConfig) -> Evaluation:
    """Greedy score on `evaluation.problems` problems of the split that `evaluation.split` names."""
    split = source.held_out if config.evaluation.split == "held_out" else source.validation
    problems = split(config.evaluation.problems)
    requests = [
        GenerationRequest(
            prompt_tokens=problem.prompt_tokens,
            num_samples=1,
            temperature=0.0,
            top_p=1.0,
            max_new_tokens=config.rollout.max_new_tokens,
            stop_token_ids=source.stop_token_ids,
            seed=0,
        )
        for problem in problems
    ]
    completions = [completion for answers in engine.generate(requests) for completion in answers]
    reward = load_reward(config.rollout, source)
    groups = [
        (problem, [Answer(text=source.tokenizer.decode(one.tokens), finished=one.finish_reason == "stop")])
        for problem, one in zip(problems, completions, strict=True)
    ]
    scores = [rewards[0].value for rewards in score_groups(reward, groups, config.rollout)]
    count = len(problems)
    return Evaluation(
        accuracy=sum(scores) / max(1, count),
        problems=count,
        mean_length=sum(len(completion.tokens) for completion in completions) / max(1, count),
        samples=tuple(
            answered(problem, completion, position=position, reward=score)
            for position, (problem, completion, score) in enumerate(zip(problems, completions, scores, strict=True))
        ),
    )
