"""Further evaluation sets: their own source, sampling and pass@k."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from vime_train.config import RunConfig
from vime_train.data import DataError
from vime_train.data.arithmetic import ArithmeticSums
from vime_train.rollout import EvaluationSets, Problem, RolloutError

SUMS = "vime_train.data.arithmetic:ArithmeticSums"
Make = Callable[..., RunConfig]


def right_every_fourth(prompt: str, sample: int, seed: int) -> str:
    total = sum(int(digit) for digit in prompt[1:-1:2])
    return f"#{total}" if sample % 4 == 0 else "#0"


def test_a_set_has_its_own_options_sampling_and_figures(scripted_engine: Any, small_run: Make) -> None:
    config = small_run(
        f"evaluation.sets.short={{source='{SUMS}', options={{max_terms=3}}, problems=10, split='validation'}}",
        f"evaluation.sets.many={{source='{SUMS}', problems=5, samples=8, temperature=0.7, top_p=0.9}}",
    )
    engine = scripted_engine(right_every_fourth)
    figures = EvaluationSets(config, ArithmeticSums()).evaluate(engine)
    assert figures["eval/short/score"] == 1.0
    assert figures["eval/many/score"] == figures["eval/many/pass@1"] == 0.25
    assert figures["eval/many/pass@8"] == 1.0
    assert figures["eval/many/truncated"] == 0.0
    assert [request.num_samples for request in engine.requests] == [1] * 10 + [8] * 5
    assert [request.temperature for request in engine.requests] == [0.0] * 10 + [0.7] * 5
    assert [request.top_p for request in engine.requests] == [1.0] * 10 + [0.9] * 5
    short = ArithmeticSums(max_terms=3, max_prompt_tokens=32).validation(10)
    assert [request.prompt_tokens for request in engine.requests[:10]] == [one.prompt_tokens for one in short]


def test_a_set_is_scored_by_its_own_source(scripted_engine: Any, small_run: Make) -> None:
    config = small_run(
        f"evaluation.sets.one={{source='{SUMS}', problems=3}}",
        "rollout.reward=vime_train.rollout.filters:reward_varies",
    )
    assert EvaluationSets(config, ArithmeticSums()).evaluate(scripted_engine(right_every_fourth))["eval/one/score"] == 1


def test_no_set_is_no_figure(scripted_engine: Any, small_run: Make) -> None:
    assert EvaluationSets(small_run(), ArithmeticSums()).evaluate(scripted_engine(right_every_fourth)) == {}


def test_a_set_without_problems_is_told(small_run: Make) -> None:
    config = small_run(
        f"evaluation.sets.none={{source='{SUMS}', options={{max_terms=1, min_terms=1, largest_term=2}}}}"
    )
    with pytest.raises(DataError, match=r"evaluation\.sets\.none: .* has no problem in its split held_out"):
        EvaluationSets(config, ArithmeticSums())


class Bare(ArithmeticSums):
    """A source without held-out problems, and with validation problems that are too long."""

    def held_out(self, count: int) -> list[Problem]:
        return []

    def validation(self, count: int) -> list[Problem]:
        return [replace(problem, prompt_tokens=(2,) * 33) for problem in super().validation(count)]


def test_an_evaluation_of_no_problem_is_refused_before_anything_starts(small_run: Make) -> None:
    """It would have been an accuracy of 0."""
    with pytest.raises(DataError, match=r"evaluation: .*ArithmeticSums has no problem in its split held_out: give it"):
        EvaluationSets(small_run(), Bare())
    EvaluationSets(small_run("evaluation.problems=0"), Bare())


def test_an_evaluation_prompt_that_is_too_long_is_refused_before_anything_starts(small_run: Make) -> None:
    with pytest.raises(RolloutError, match=r"with 33 prompt tokens: 1 to data\.max_prompt_tokens = 32 are needed"):
        EvaluationSets(small_run("evaluation.split=validation"), Bare())
