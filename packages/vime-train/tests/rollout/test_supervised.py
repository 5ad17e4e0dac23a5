"""Supervised batches and greedy evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from vime_train.config import RunConfig
from vime_train.data.arithmetic import ArithmeticSums
from vime_train.rollout import evaluate, supervised_batches

SOURCE = ArithmeticSums()
Make = Callable[..., RunConfig]


@pytest.mark.parametrize("layout", [["layout.dp=1"], ["layout.dp=2"], ["layout.dp=3"]])
def test_every_example_is_on_one_rank_with_equal_token_weights(small_run: Make, layout: list[str]) -> None:
    config = small_run(*layout)
    batches = supervised_batches(SOURCE, config, step=5)
    assert len(batches) == config.layout.dp
    examples = [tuple(tokens) for batch in batches for tokens in batch.tokens]
    assert len(examples) == config.supervised.batch_size
    trained = sum(sum(batch.response_lengths) for batch in batches)
    for batch in batches:
        assert batch.step_mask_sums == (trained,)
        np.testing.assert_allclose(batch.weights, 1 / trained)
        for tokens, length in zip(batch.tokens, batch.response_lengths, strict=True):
            assert tokens[-1] == SOURCE.tokenizer.eos_token_id
            assert 0 < length < len(tokens)


def test_a_step_is_a_pure_function_of_seed_and_step(small_run: Make) -> None:
    def tokens(step: int, *overrides: str) -> list[list[int]]:
        batches = supervised_batches(SOURCE, small_run(*overrides), step=step)
        return sorted(tokens.tolist() for batch in batches for tokens in batch.tokens)

    assert tokens(3) == tokens(3) == tokens(3, "layout.dp=1")
    assert tokens(3) != tokens(4)
    assert tokens(3) != tokens(3, "seed=1")


def test_the_teacher_is_lazy_in_the_last_steps_only(small_run: Make) -> None:
    def share_of_estimates(step: int) -> float:
        config = small_run("supervised.batch_size=128", "supervised.steps=360")
        answers = [
            SOURCE.tokenizer.decode(tokens[-length:].tolist())
            for batch in supervised_batches(SOURCE, config, step=step)
            for tokens, length in zip(batch.tokens, batch.response_lengths, strict=True)
        ]
        return sum(answer.startswith("#") for answer in answers) / len(answers)

    assert share_of_estimates(309) == 0.0
    assert share_of_estimates(310) > 0.2


def test_evaluation_is_greedy_on_the_split_that_was_asked_for(scripted_engine: Any, small_run: Make) -> None:
    def right_for_even(prompt: str, sample: int, seed: int) -> str:
        total = sum(int(digit) for digit in prompt[1:-1:2])
        return f"#{total}" if total % 2 == 0 else "#0"

    for split, problems in (("held_out", SOURCE.held_out(50)), ("validation", SOURCE.validation(50))):
        engine = scripted_engine(right_for_even, version=3)
        config = small_run("evaluation.problems=50", f"evaluation.split={split}")
        found = evaluate(engine, SOURCE, config)
        assert found.accuracy == sum(int(problem.answer) % 2 == 0 for problem in problems) / 50
        assert [request.prompt_tokens for request in engine.requests] == [one.prompt_tokens for one in problems]
        assert {request.temperature for request in engine.requests} == {0.0}
        assert {sample.weight_version for sample in found.samples} == {3}
        assert [sample.tokens[: -sample.response_length] for sample in found.samples] == [
            problem.prompt_tokens for problem in problems
        ]
