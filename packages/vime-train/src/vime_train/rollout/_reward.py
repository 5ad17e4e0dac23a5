"""What an answer is worth: the number to train on, and beside it by name whatever else its judge measured.

Always true: every number is finite; a judge that gives anything else is an error that names it, the problem and the
answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from vime_train._errors import RunError


class RewardError(RunError, RuntimeError):
    """A reward that could not be computed: which function, which problem, which answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """`value` is trained on; `parts` are reported as means, `reward/NAME`, and kept with saved rollouts."""

    value: float
    parts: Mapping[str, float] = field(default_factory=dict)


def read_reward(found: object, *, key: str | None, judge: str, given: Callable[[], str]) -> Reward:
    """The reward that a judge gave: a number, or a mapping of names to numbers with the one of `rollout.reward_key`.

    Args:
        found: what it returned.
        key: `rollout.reward_key`.
        judge: how it is called in an error.
        given: what it was given, for an error.

    Raises:
        RewardError: if it is neither, or a number is not finite.

    Example:
        >>> read_reward({"right": 1.0, "short": 0.5}, key="right", judge="my:judge", given=str)
        Reward(value=1.0, parts={'short': 0.5})
    """
    if not isinstance(found, Mapping):
        return Reward(value=_finite(found, judge, given))
    numbers = {str(name): _finite(value, judge, given, name=str(name)) for name, value in found.items()}
    if key is None:
        raise RewardError(
            f"{judge} returned {sorted(numbers)} by name; given {given()}: set rollout.reward_key to the one of them "
            "to train on."
        )
    if key not in numbers:
        raise RewardError(
            f"{judge} returned {sorted(numbers)} by name; given {given()}: rollout.reward_key = {key!r} is needed "
            "among them."
        )
    return Reward(value=numbers.pop(key), parts=numbers)


def _finite(value: object, judge: str, given: Callable[[], str], *, name: str | None = None) -> float:
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    what = f"{value!r}" if name is None else f"{value!r} for {name!r}"
    raise RewardError(f"{judge} returned {what}; given {given()}: a finite number is needed.")
