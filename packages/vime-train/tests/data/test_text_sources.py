"""Sources for models that speak: worded sums and reasoning-gym."""

from __future__ import annotations

import string
from typing import Any

import pytest

from vime_train.data import CharTokenizer, DataError
from vime_train.data._split import split_of
from vime_train.data.reasoning import ReasoningGym
from vime_train.data.worded import WordedSums

TOKENIZER = CharTokenizer(alphabet=string.printable, vocab_size=128)


def gym(**options: Any) -> ReasoningGym:
    chosen = {"tokenizer": TOKENIZER, "max_prompt_tokens": 200, "dataset": "chain_sum", "chat": False} | options
    return ReasoningGym(**chosen)


def test_worded_sums_are_in_one_split_each() -> None:
    found = WordedSums(tokenizer=TOKENIZER, max_prompt_tokens=60, largest=9, chat=False)
    splits = [found.held_out(200), found.validation(200)]
    train = {problem.prompt for problem in found.problems(300, seed=0, start=0)}
    assert sum(map(len, splits)) + len(train) == 100
    assert not train & {problem.prompt for split in splits for problem in split}


def test_worded_sums_score_the_last_number() -> None:
    found = WordedSums(tokenizer=TOKENIZER, max_prompt_tokens=60, chat=False)
    problem = found.problems(1, seed=0, start=0)[0]
    assert found.score(problem, f"That is {problem.answer}.", finished=True) == 1.0
    assert found.score(problem, "99", finished=True) == 0.0


def test_a_number_that_the_token_limit_may_have_cut_does_not_count() -> None:
    found = WordedSums(tokenizer=TOKENIZER, max_prompt_tokens=60, chat=False)
    problem = found.problems(1, seed=0, start=0)[0]
    assert found.score(problem, f"That is {problem.answer} and", finished=False) == 1.0
    assert found.score(problem, f"That is {problem.answer}", finished=False) == 0.0
    assert found.score(problem, f"{problem.answer} and not 9", finished=False) == 1.0


def test_worded_sums_that_do_not_fit_are_told() -> None:
    with pytest.raises(DataError, match="no sum fits"):
        WordedSums(tokenizer=TOKENIZER, max_prompt_tokens=10, chat=False)


def test_reasoning_problems_are_a_pure_function_of_seed_and_position() -> None:
    found = gym(min_terms=2, max_terms=3)
    whole = found.problems(6, seed=3, start=10)
    assert whole == gym(min_terms=2, max_terms=3).problems(3, seed=3, start=10) + found.problems(3, seed=3, start=13)
    assert whole != found.problems(6, seed=4, start=10)


def test_reasoning_splits_are_those_of_the_hash() -> None:
    found = gym()
    assert {split_of(problem.prompt) for problem in found.problems(10, seed=0, start=0)} == {"train"}
    assert {split_of(problem.prompt) for problem in found.held_out(10)} == {"held_out"}
    assert {split_of(problem.prompt) for problem in found.validation(10)} == {"validation"}


def test_reasoning_answers_are_scored_by_the_dataset() -> None:
    found = gym()
    problem = found.problems(1, seed=0, start=0)[0]
    assert found.score(problem, problem.answer, finished=True) == 1.0
    assert found.score(problem, f"Well, <answer> {problem.answer} </answer>", finished=True) == 1.0
    assert found.score(problem, problem.answer, finished=False) == 0.0
    assert found.score(problem, "no idea", finished=True) < 1.0


def test_reasoning_prompts_that_are_too_long_are_passed_over_and_counted() -> None:
    found = gym(max_prompt_tokens=72, min_terms=2, max_terms=6)
    assert all(len(problem.prompt_tokens) <= 72 for problem in found.problems(10, seed=0, start=0))
    assert found.left_out > 0


def test_reasoning_prompts_that_never_fit_are_told() -> None:
    with pytest.raises(DataError, match=r"no train problem within data\.max_prompt_tokens = 5 among 64 tasks"):
        gym(max_prompt_tokens=5).problems(1, seed=0, start=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"dataset": "nope"}, "'nope' not registered"), ({"min_term": 3}, "unexpected keyword argument 'min_term'")],
)
def test_reasoning_options_that_do_not_fit_are_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        gym(**options)
