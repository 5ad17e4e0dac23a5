"""From answers to rewards: the source's own score, a single reward function, or one that sees a whole group.

Always true of the rewards of a group: one finite number per answer, in their order. A reward function that raises, or
answers anything else, ends the run with an error that names the function, the problem and the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from vime_train.plugins import PluginError, resolve

if TYPE_CHECKING:
    from vime_train.config import RolloutSection
    from vime_train.data import DataSource
    from vime_train.rollout._samples import Problem


class RewardError(RuntimeError):
    """A reward that could not be computed: which function, which problem, which answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a reward function judges: the text, and whether the answer ended by itself."""

    text: str
    finished: bool


GroupReward = Callable[["Problem", Sequence[Answer]], list[float]]


def load_reward(section: RolloutSection, source: DataSource) -> GroupReward:
    """The rewards of one problem's answers, as the configuration chooses them."""
    if section.group_reward is not None:
        return _checked(section.group_reward, _function(section.group_reward, "rollout.group_reward"))
    if section.reward is not None:
        return _checked(section.reward, _one_by_one(section.reward, _function(section.reward, "rollout.reward")))
    return _checked("the data source's score", _one_by_one("the data source's score", source.score))


def _function(path: str, key: str) -> Callable[..., object]:
    found = resolve(path, needed_for=key)
    if not callable(found):
        raise PluginError(f"{key} = {path!r} is not callable.")
    return cast("Callable[..., object]", found)


def _one_by_one(name: str, score: Callable[..., object]) -> Callable[..., object]:
    def rewards(problem: Problem, answers: Sequence[Answer]) -> list[object]:
        found = []
        for answer in answers:
            try:
                found.append(score(problem, answer.text, finished=answer.finished))
            except Exception as error:
                raise _failed(name, problem, answer.text, error) from error
        return found

    return rewards


def _checked(name: str, function: Callable[..., object]) -> GroupReward:
    def rewards(problem: Problem, answers: Sequence[Answer]) -> list[float]:
        try:
            found = function(problem, answers)
        except RewardError:
            raise
        except Exception as error:
            raise _failed(name, problem, [answer.text for answer in answers], error) from error
        return _numbers(name, problem, answers, found)

    return rewards


def _failed(name: str, problem: Problem, answer: object, error: Exception) -> RewardError:
    return RewardError(
        f"reward {name} raised {type(error).__name__}: {error}; problem {problem.problem_id!r}, answer {answer!r}."
    )


def _numbers(name: str, problem: Problem, answers: Sequence[Answer], found: object) -> list[float]:
    if not isinstance(found, Sequence) or len(found) != len(answers):
        raise RewardError(
            f"reward {name} returned {found!r} for problem {problem.problem_id!r}: "
            f"{len(answers)} numbers are needed, one per answer."
        )
    for answer, value in zip(answers, found, strict=True):
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise RewardError(
                f"reward {name} returned {value!r} for problem {problem.problem_id!r}, answer {answer.text!r}: "
                "a finite number is needed."
            )
    return [float(value) for value in found]
