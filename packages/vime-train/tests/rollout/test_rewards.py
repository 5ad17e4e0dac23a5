"""Rewards: the source's, a function's, a group function's; and functions that fail."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest

from vime_train.config import RolloutSection
from vime_train.data.arithmetic import ArithmeticSums
from vime_train.rollout import Answer, Problem, RewardError, load_reward

SOURCE = ArithmeticSums()
PROBLEM = Problem(problem_id="p1", prompt="a7b6=", answer="13", prompt_tokens=(2,))
ANSWERS = [Answer(text="#13", finished=True), Answer(text="#13", finished=False), Answer(text="#1", finished=True)]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> str:
    """An import path of this module."""
    monkeypatch.setitem(sys.modules, "plugins_of_test_rewards", sys.modules[__name__])
    return "plugins_of_test_rewards"


def length(problem: Problem, answer: str, *, finished: bool) -> float:
    return len(answer) if finished else -1


def ranks(problem: Problem, answers: Sequence[Answer]) -> list[float]:
    return [place / len(answers) for place, _ in enumerate(answers)]


def short(problem: Problem, answers: Sequence[Answer]) -> list[float]:
    return [1.0]


def text(problem: Problem, answer: str, *, finished: bool) -> str:
    return "good"


def infinite(problem: Problem, answer: str, *, finished: bool) -> float:
    return float("inf")


def fails(problem: Problem, answer: str, *, finished: bool) -> float:
    return 1 / (len(answer) - 2)


def group_fails(problem: Problem, answers: Sequence[Answer]) -> list[float]:
    raise LookupError("nothing found")


def nan_in_group(problem: Problem, answers: Sequence[Answer]) -> list[float]:
    return [0.0, 0.0, float("nan")]


def test_the_sources_score_is_the_default() -> None:
    assert load_reward(RolloutSection(), SOURCE)(PROBLEM, ANSWERS) == [1.0, 0.0, 0.0]


def test_a_function_judges_one_answer(here: str) -> None:
    assert load_reward(RolloutSection(reward=f"{here}:length"), SOURCE)(PROBLEM, ANSWERS) == [3.0, -1.0, 2.0]


def test_a_group_function_judges_all_answers(here: str) -> None:
    reward = load_reward(RolloutSection(group_reward=f"{here}:ranks"), SOURCE)
    assert reward(PROBLEM, ANSWERS) == pytest.approx([0.0, 1 / 3, 2 / 3])


@pytest.mark.parametrize(
    ("key", "name", "message"),
    [
        ("reward", "text", r"returned 'good'; given problem 'p1', answer '#13': a finite number is needed"),
        ("reward", "infinite", r"returned inf; given problem 'p1', answer '#13'"),
        (
            "reward",
            "fails",
            r"raised ZeroDivisionError: .* \(at .*test_rewards\.py:\d+\); given problem 'p1', answer '#1'",
        ),
        ("group_reward", "short", r"returned \[1\.0\]; given problem 'p1', answers '#13', '#13', '#1': 3 numbers"),
        ("group_reward", "group_fails", r"raised LookupError: nothing found"),
        ("group_reward", "nan_in_group", r"returned nan; given problem 'p1', answer '#1'"),
    ],
)
def test_a_reward_that_fails_names_function_problem_and_answer(here: str, key: str, name: str, message: str) -> None:
    """Bad input of the trainer: a reward function that raises, or answers nonsense."""
    reward = load_reward(RolloutSection(**{key: f"{here}:{name}"}), SOURCE)  # type: ignore[arg-type]
    with pytest.raises(RewardError, match=rf"rollout\.{key} = '{here}:{name}' {message}"):
        reward(PROBLEM, ANSWERS)
