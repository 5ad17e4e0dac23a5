"""From answers to rewards: the source's own score, a function of one answer or of a whole group, or a server.

Always true of the rewards of a group: one per answer, in their order. A reward function that raises, or answers
anything else, ends the run with an error that names the function, the problem and the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from vime_train.plugins import calling, contract_of, load
from vime_train.rollout._names import check_names
from vime_train.rollout._reward import Reward, RewardError, read_reward
from vime_train.rollout._reward_server import RewardServer
from vime_train.rollout._threads import in_threads

if TYPE_CHECKING:
    from vime_train.config import RolloutSection
    from vime_train.data import DataSource
    from vime_train.rollout._samples import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a reward function judges: the text, and whether the answer ended by itself."""

    text: str
    finished: bool


GroupReward = Callable[["Problem", Sequence[Answer]], list[Reward]]


def load_reward(section: RolloutSection, source: DataSource) -> GroupReward:
    """The rewards of one problem's answers, as the problem names them or else the configuration chooses them.

    Raises:
        PluginError: if an import path leads nowhere or a signature does not fit.
    """
    default = _default(section, source)
    named = {
        name: _one_by_one(_load(f"rollout.rewards.{name}", path), section.reward_key)
        for name, path in section.rewards.items()
    }

    def rewards(problem: Problem, answers: Sequence[Answer]) -> list[Reward]:
        check_names([problem], section)
        return named.get(problem.reward, default)(problem, answers)

    return rewards


def _default(section: RolloutSection, source: DataSource) -> GroupReward:
    key = section.reward_key
    if section.reward_url is not None:
        url = f"rollout.reward_url = {section.reward_url!r}"
        return _of_group((url, RewardServer(section.reward_url, section)), key)
    if section.group_reward is not None:
        return _of_group(_load("rollout.group_reward", section.group_reward), key)
    if section.reward is not None:
        return _one_by_one(_load("rollout.reward", section.reward), key)
    return _one_by_one((f"the score of {type(source).__name__}", source.score), key)


def _load(key: str, path: str) -> tuple[str, Callable[..., Any]]:
    """A judge, and how it is called in an error."""
    return f"{key} = {path!r}", load(path, contract_of(key))


def score_groups(
    reward: GroupReward, groups: Sequence[tuple[Problem, Sequence[Answer]]], section: RolloutSection
) -> list[list[Reward]]:
    """The rewards of several problems' answers, in order; a server is asked for several problems at once."""
    if section.reward_url is None:
        return [reward(problem, answers) for problem, answers in groups]
    return in_threads(lambda group: reward(*group), groups, threads=section.reward_concurrency)


def _one_by_one(judge: tuple[str, Callable[..., Any]], key: str | None) -> GroupReward:
    name, reward = judge

    def rewards(problem: Problem, answers: Sequence[Answer]) -> list[Reward]:
        found = []
        for answer in answers:
            given = partial(_given, problem, answer)
            with calling(name, given, RewardError):
                value = reward(problem, answer.text, finished=answer.finished)
            found.append(read_reward(value, key=key, judge=name, given=given))
        return found

    return rewards


def _of_group(judge: tuple[str, Callable[..., Any]], key: str | None) -> GroupReward:
    name, reward = judge

    def rewards(problem: Problem, answers: Sequence[Answer]) -> list[Reward]:
        with calling(name, lambda: _given(problem, *answers), RewardError):
            values = reward(problem, answers)
        if not isinstance(values, Sequence) or len(values) != len(answers):
            raise RewardError(
                f"{name} returned {values!r}; given {_given(problem, *answers)}: "
                f"{len(answers)} numbers are needed, one per answer."
            )
        return [
            read_reward(value, key=key, judge=name, given=partial(_given, problem, answer))
            for value, answer in zip(values, answers, strict=True)
        ]

    return rewards


def _given(problem: Problem, *answers: Answer) -> str:
    texts = ", ".join(repr(answer.text) for answer in answers)
    return f"problem {problem.problem_id!r}, answer{'s' * (len(answers) > 1)} {texts}"
