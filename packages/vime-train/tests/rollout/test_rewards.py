"""Rewards: the source's, a function's, a group function's; and functions that fail."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest

from vime_train.config import RolloutSection
from vime_train.data.arithmetic import ArithmeticSums
from vime_train.rollout import Answer, Problem, Reward, RewardError, RolloutError, load_reward

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


def parts(problem: Problem, answer: str, *, finished: bool) -> dict[str, float]:
    return {"right": float(finished), "length": len(answer)}


def parts_of_a_group(problem: Problem, answers: Sequence[Answer]) -> list[dict[str, float]]:
    return [{"right": place, "length": len(answer.text)} for place, answer in enumerate(answers)]


def infinite_part(problem: Problem, answer: str, *, finished: bool) -> dict[str, float]:
    return {"right": 1.0, "length": float("inf")}


def values(section: RolloutSection) -> list[float]:
    rewards = load_reward(section, SOURCE)(PROBLEM, ANSWERS)
    assert all(reward.parts == {} for reward in rewards)
    return [reward.value for reward in rewards]


def test_the_sources_score_is_the_default() -> None:
    assert values(RolloutSection()) == [1.0, 0.0, 0.0]


def test_a_function_judges_one_answer(here: str) -> None:
    assert values(RolloutSection(reward=f"{here}:length")) == [3.0, -1.0, 2.0]


def test_a_group_function_judges_all_answers(here: str) -> None:
    assert values(RolloutSection(group_reward=f"{here}:ranks")) == pytest.approx([0.0, 1 / 3, 2 / 3])


def test_one_entry_of_a_mapping_is_trained_on_and_the_others_go_with_it(here: str) -> None:
    one = load_reward(RolloutSection(reward=f"{here}:parts", reward_key="right"), SOURCE)
    assert one(PROBLEM, ANSWERS) == [
        Reward(value=1.0, parts={"length": 3.0}),
        Reward(value=0.0, parts={"length": 3.0}),
        Reward(value=1.0, parts={"length": 2.0}),
    ]
    group = load_reward(RolloutSection(group_reward=f"{here}:parts_of_a_group", reward_key="length"), SOURCE)
    assert [reward.value for reward in group(PROBLEM, ANSWERS)] == [3.0, 3.0, 2.0]
    assert [reward.parts for reward in group(PROBLEM, ANSWERS)] == [{"right": 0}, {"right": 1}, {"right": 2}]


def test_a_key_does_not_forbid_numbers(here: str) -> None:
    """Other functions of the same run may give them."""
    assert values(RolloutSection(reward=f"{here}:length", reward_key="right")) == [3.0, -1.0, 2.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reward": "parts"}, r"returned \['length', 'right'\] by name; .* set rollout\.reward_key to the one of them"),
        ({"reward": "parts", "reward_key": "correct"}, r"rollout\.reward_key = 'correct' is needed among them"),
        ({"reward": "infinite_part", "reward_key": "right"}, "returned inf for 'length'; given problem 'p1'"),
    ],
)
def test_a_mapping_that_cannot_be_trained_on_is_told(here: str, options: dict[str, str], message: str) -> None:
    section = RolloutSection(**{**options, "reward": f"{here}:{options['reward']}"})  # type: ignore[arg-type]
    with pytest.raises(RewardError, match=message):
        load_reward(section, SOURCE)(PROBLEM, ANSWERS)


def test_a_problem_names_its_judge(here: str) -> None:
    section = RolloutSection(reward=f"{here}:length", rewards={"parts": f"{here}:parts"}, reward_key="right")
    reward = load_reward(section, SOURCE)
    assert [one.value for one in reward(PROBLEM, ANSWERS)] == [3.0, -1.0, 2.0]
    assert [one.value for one in reward(replace(PROBLEM, reward="parts"), ANSWERS)] == [1.0, 0.0, 1.0]
    with pytest.raises(RolloutError, match=r"'p1' names 'part' of \[rollout\.rewards\], which has parts\. Did you"):
        reward(replace(PROBLEM, reward="part"), ANSWERS)


def test_a_named_judge_that_fails_is_called_by_its_name(here: str) -> None:
    reward = load_reward(RolloutSection(rewards={"code": f"{here}:fails"}), SOURCE)
    with pytest.raises(RewardError, match=rf"rollout\.rewards\.code = '{here}:fails' raised ZeroDivisionError"):
        reward(replace(PROBLEM, reward="code"), ANSWERS)


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
