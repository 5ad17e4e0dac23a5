"""From answers to rewards: the source's own score, a function of one answer or of a whole group, or a server.

Always true of the rewards of a group: one finite number per answer, in their order. A reward function that raises, or
answers anything else, ends the run with an error that names the function, the problem and the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vime_train._errors import RunError
from vime_train.plugins import CONTRACTS, calling, load
from vime_train.rollout._reward_server import RewardServer
from vime_train.rollout._threads import in_threads

if TYPE_CHECKING:
    from vime_train.config import RolloutSection
    from vime_train.data import DataSource
    from vime_train.rollout._samples import Problem


class RewardError(RunError, RuntimeError):
    """A reward that could not be computed: which function, which problem, which answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a reward function judges: the text, and whether the answer ended by itself."""

    text: str
    finished: bool


GroupReward = Callable[["Problem", Sequence[Answer]], list[float]]


def load_reward(section: RolloutSection, source: DataSource) -> GroupReward:
    """The rewards of one problem's answers, as the configuration chooses them."""
    if section.reward_url is not None:
        return _of_group(f"rollout.reward_url = {section.reward_url!r}", RewardServer(section.reward_url, section))
    if section.group_reward is not None:
        function = load(section.group_reward, CONTRACTS["rollout.group_reward"])
        return _of_group(f"rollout.group_reward = {section.group_reward!r}", function)
    if section.reward is not None:
        function = load(section.reward, CONTRACTS["rollout.reward"])
        return _one_by_one(f"rollout.reward = {section.reward!r}", function)
    return _one_by_one(f"the score of {type(source).__name__}", source.score)


def score_groups(
    reward: GroupReward, groups: Sequence[tuple[Problem, Sequence[Answer]]], section: RolloutSection
) -> list[list[float]]:
    """The rewards of several problems' answers, in order; a server is asked for several problems at once."""
    if section.reward_url is None:
        return [reward(problem, answers) for problem, answers in groups]
    return in_threads(lambda group: reward(*group), groups, threads=section.reward_concurrency)


def _one_by_one(name: str, reward: Callable[..., Any]) -> GroupReward:
    def rewards(problem: Problem, answers: Sequence[Answer]) -> list[float]:
        found = []
        for answer in answers:
            with calling(name, lambda answer=answer: _given(problem, answer), RewardError):  # type: ignore[misc]
                value = reward(problem, answer.text, finished=answer.finished)
            found.append(_number(value, name, problem, answer))
        return found

    return rewards


def _of_group(name: str, reward: Callable[..., Any]) -> GroupReward:
    def rewards(problem: Problem, answers: Sequence[Answer]) -> list[float]:
        with calling(name, lambda: _given(problem, *answers), RewardError):
            values = reward(problem, answers)
        if not isinstance(values, Sequence) or len(values) != len(answers):
            raise RewardError(
                f"{name} returned {values!r}; given {_given(problem, *answers)}: "
                f"{len(answers)} numbers are needed, one per answer."
            )
        return [_number(value, name, problem, answer) for value, answer in zip(values, answers, strict=True)]

    return rewards


def _number(value: object, name: str, problem: Problem, answer: Answer) -> float:
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    raise RewardError(f"{name} returned {value!r}; given {_given(problem, answer)}: a finite number is needed.")


def _given(problem: Problem, *answers: Answer) -> str:
    texts = ", ".join(repr(answer.text) for answer in answers)
    return f"problem {problem.problem_id!r}, answer{'s' * (len(answers) > 1)} {texts}"
