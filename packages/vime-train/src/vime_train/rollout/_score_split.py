"""Answers to the problems of a split, as often as asked, and what they are worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vime_metrics import Mean
from vime_metrics.rl import pass_rates
from vime_train.engine import GenerationRequest
from vime_train.rollout._rewards import Answer, load_reward, score_groups

if TYPE_CHECKING:
    from vime_train.config import RunConfig
    from vime_train.data import DataSource
    from vime_train.engine import Completion, Engine
    from vime_train.rollout._samples import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredAnswer:
    """One answer to one problem: its text, its length in tokens, and its score."""

    problem: Problem
    text: str
    tokens: int
    finished: bool
    score: float


def score_split(
    engine: Engine,
    source: DataSource,
    config: RunConfig,
    problems: Sequence[Problem],
    *,
    samples: int,
    temperature: float,
    top_p: float,
) -> list[ScoredAnswer]:
    """`samples` answers to each problem, in order; `temperature = 0` is greedy. Nothing is tried again."""
    requests = [
        GenerationRequest(
            prompt_tokens=problem.prompt_tokens,
            num_samples=samples,
            temperature=temperature,
            top_p=top_p if temperature > 0 else 1.0,
            max_new_tokens=config.rollout.max_new_tokens,
            stop_token_ids=source.stop_token_ids,
            seed=config.seed + place,
        )
        for place, problem in enumerate(problems)
    ]
    judge = load_reward(config.rollout, source)
    completed = engine.generate(requests)
    groups = [
        (problem, [_answer(completion, source) for completion in completions])
        for problem, completions in zip(problems, completed, strict=True)
    ]
    rewards = score_groups(judge, groups, config.rollout)
    return [
        ScoredAnswer(
            problem=problem,
            text=answer.text,
            tokens=len(completion.tokens),
            finished=answer.finished,
            score=reward.value,
        )
        for (problem, answers), completions, values in zip(groups, completed, rewards, strict=True)
        for answer, completion, reward in zip(answers, completions, values, strict=True)
    ]


def split_figures(scored: Sequence[ScoredAnswer], *, solved_score: float) -> dict[str, float]:
    """Mean score, mean length, share of cut answers, and pass@k where problems have several answers."""
    figures = {
        "score": Mean.of([one.score for one in scored]).value,
        "mean_length": Mean.of([one.tokens for one in scored]).value,
        "truncated": Mean.of([float(not one.finished) for one in scored]).value,
    }
    correct = [float(one.score >= solved_score) for one in scored]
    rates = pass_rates(correct, [one.problem.problem_id for one in scored])
    return figures | {name: rate.value for name, rate in rates.items()}


def _answer(completion: Completion, source: DataSource) -> Answer:
    return Answer(text=source.tokenizer.decode(completion.tokens), finished=completion.finish_reason == "stop")
