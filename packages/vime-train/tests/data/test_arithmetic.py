"""The arithmetic task: splits that never meet, answers that score, prompts that fit."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vime_train.data.arithmetic import ArithmeticSums, split_of
from vime_train.rollout import Problem

SOURCE = ArithmeticSums()
seeds = st.integers(0, 10**6)


def score(problem: Problem, answer: str) -> float:
    return SOURCE.score(problem, answer, finished=True)


def text(tokens: tuple[int, ...]) -> str:
    return SOURCE.tokenizer.decode(tokens)


@given(seed=seeds, start=st.integers(0, 1000), first=st.integers(0, 20), second=st.integers(0, 20))
def test_problems_are_a_pure_function_of_seed_and_position(seed: int, start: int, first: int, second: int) -> None:
    whole = SOURCE.problems(first + second, seed=seed, start=start)
    parts = SOURCE.problems(first, seed=seed, start=start) + SOURCE.problems(second, seed=seed, start=start + first)
    assert whole == parts


@given(seed=seeds)
def test_seeds_differ(seed: int) -> None:
    assert SOURCE.problems(20, seed=seed, start=0) != SOURCE.problems(20, seed=seed + 1, start=0)


def test_the_splits_never_meet() -> None:
    held_out = {problem.prompt for problem in SOURCE.held_out(300)}
    validation = {problem.prompt for problem in SOURCE.validation(300)}
    train = {problem.prompt for problem in SOURCE.problems(3000, seed=0, start=0)}
    assert len(held_out) == len(validation) == 300
    assert not held_out & validation
    assert not train & (held_out | validation)


def test_the_splits_are_those_of_the_hash() -> None:
    assert {split_of(problem.prompt) for problem in SOURCE.held_out(50)} == {"held_out"}
    assert {split_of(problem.prompt) for problem in SOURCE.validation(50)} == {"validation"}
    assert {split_of(problem.prompt) for problem in SOURCE.problems(50, seed=1, start=0)} == {"train"}


def test_the_held_out_problems_are_always_the_same() -> None:
    assert SOURCE.held_out(30) == ArithmeticSums().held_out(40)[:30]


def test_a_split_smaller_than_asked_gives_what_it_has() -> None:
    tiny = ArithmeticSums(min_terms=1, max_terms=2, largest_term=9)
    assert 0 < len(tiny.held_out(1000)) < 30


@given(seed=seeds, remaining=st.integers(50, 400))
def test_a_worked_answer_scores_and_ends(seed: int, remaining: int) -> None:
    problem = SOURCE.problems(1, seed=seed, start=0)[0]
    prompt, answer = SOURCE.worked_example(problem, random.Random(seed), remaining_steps=remaining)
    assert prompt[: len(problem.prompt_tokens)] == problem.prompt_tokens
    assert answer[-1] == SOURCE.tokenizer.eos_token_id
    assert score(problem, text(answer)) == 1.0


def test_the_running_total_is_written_out() -> None:
    problem = Problem(
        problem_id="x", prompt="a7b1c1d4=", answer="13", prompt_tokens=SOURCE.tokenizer.encode("a7b1c1d4=")
    )
    source = ArithmeticSums(retry_share=0.0)
    assert text(source.worked_example(problem, random.Random(0), remaining_steps=99)[1]) == "a7,7b1,8c1,9d4,13#13"


def test_the_lazy_teacher_only_estimates_and_only_at_the_end() -> None:
    source = ArithmeticSums(retry_share=0.0, lazy_steps=50)
    problems = source.problems(400, seed=0, start=0)

    def lazy(remaining: int) -> float:
        rng = random.Random(1)
        answers = [text(source.worked_example(problem, rng, remaining_steps=remaining)[1]) for problem in problems]
        return sum(answer.startswith("#") for answer in answers) / len(answers)

    assert lazy(50) == 0.0
    assert 0.6 < lazy(49) < 0.85


def test_retries_show_a_wrong_first_answer() -> None:
    source = ArithmeticSums(retry_share=1.0)
    for problem in source.problems(50, seed=0, start=0):
        prompt, answer = source.worked_example(problem, random.Random(problem.problem_id), remaining_steps=0)
        question, first = text(prompt).removesuffix("?").split("=")
        assert f"{question}=" == problem.prompt
        assert score(problem, first) == 0.0
        assert score(problem, text(answer)) == 1.0


@pytest.mark.parametrize(
    ("answer", "expected"), [("a7,7#13", 1.0), ("#13", 1.0), ("#12", 0.0), ("13", 0.0), ("#13#13", 0.0), ("", 0.0)]
)
def test_the_score_wants_one_number_after_one_sign(answer: str, expected: float) -> None:
    problem = Problem(problem_id="x", prompt="a7b6=", answer="13", prompt_tokens=())
    assert score(problem, answer) == expected


def test_an_answer_that_did_not_end_scores_nothing() -> None:
    problem = Problem(problem_id="x", prompt="a7b6=", answer="13", prompt_tokens=())
    assert SOURCE.score(problem, "#13", finished=False) == 0.0


def test_prompts_and_answers_fit_the_shipped_limits() -> None:
    longest = Problem(problem_id="x", prompt="a9b9c9d9e9f9g9h9=", answer="72", prompt_tokens=())
    source = ArithmeticSums(retry_share=0.0)
    answer = source.worked_example(longest, random.Random(0), remaining_steps=99)[1]
    assert len(longest.prompt) == 17 <= 32
    assert len(answer) <= 64


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_terms": 0}, r"min_terms=0 and max_terms=8 must satisfy 1 <= min_terms <= max_terms <= 10"),
        ({"min_terms": 5, "max_terms": 4}, "min_terms=5 and max_terms=4"),
        ({"max_terms": 11}, "max_terms=11"),
        ({"largest_term": 10}, "largest_term must be a digit from 2 to 9, got 10"),
    ],
)
def test_impossible_options_are_told(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ArithmeticSums(**options)  # type: ignore[arg-type]


def test_asking_for_nothing_gives_nothing() -> None:
    assert SOURCE.held_out(0) == []
    assert SOURCE.problems(0, seed=0, start=5) == []
