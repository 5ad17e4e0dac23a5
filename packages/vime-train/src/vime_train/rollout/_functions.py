"""The rollout functions of a run: `rollout.function`, and those of `rollout.functions` for the problems that name one.

Always true: every problem, and every rollout that goes on, is given to the function that its problem names, once; what
comes back is checked function by function, and stands in the order in which it was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vime_train.plugins import calling, contract_of, load
from vime_train.rollout._check import RolloutError, check_resumed, check_rollouts

if TYPE_CHECKING:
    from vime_train.config import RolloutSection
    from vime_train.engine import Engine
    from vime_train.rollout._context import RolloutContext
    from vime_train.rollout._samples import Problem, Rollout

_KEY = "rollout.function"


class RolloutFunctions:
    """Loaded when made.

    Raises:
        PluginError: if an import path leads nowhere or a signature does not fit.
    """

    def __init__(self, section: RolloutSection) -> None:
        paths = {"": (_KEY, section.function)}
        paths |= {name: (f"{_KEY}s.{name}", path) for name, path in section.functions.items()}
        self._functions = {
            name: (f"{key} = {path!r}", load(path, contract_of(key))) for name, (key, path) in paths.items()
        }

    def generate(self, engine: Engine, problems: Sequence[Problem], context: RolloutContext) -> list[Rollout]:
        """Rollouts of the problems, whose groups are `context.group_ids`, and of `context.resumed`.

        Raises:
            RolloutError: if a function raises, or does not return what was asked for.
        """
        found: list[Rollout] = []
        for name in self._functions:
            places = [place for place, problem in enumerate(problems) if problem.function == name]
            resumed = tuple(rollout for rollout in context.resumed if rollout.problem.function == name)
            if places or resumed:
                own = replace(context, group_ids=tuple(context.group_ids[place] for place in places), resumed=resumed)
                found += self._call(name, engine, [problems[place] for place in places], own)
        _check_ids(found)
        asked = [*(rollout.group_id for rollout in context.resumed), *context.group_ids]
        order = {group_id: place for place, group_id in enumerate(asked)}
        return sorted(found, key=lambda rollout: order[rollout.group_id])

    def _call(
        self, name: str, engine: Engine, problems: Sequence[Problem], context: RolloutContext
    ) -> Sequence[Rollout]:
        shown, function = self._functions[name]
        first = problems[0] if problems else context.resumed[0].problem
        with calling(shown, lambda: f"{len(problems)} problems, the first {first.problem_id!r}", RolloutError):
            rollouts: list[Rollout] = function(engine, problems, context)
        groups = {*context.group_ids, *(rollout.group_id for rollout in context.resumed)}
        check_rollouts(
            rollouts, shown, expected_groups=groups, may_be_unfinished=context.config.rollout.partial_rollout
        )
        check_resumed(rollouts, context.resumed, shown)
        return rollouts


def _check_ids(rollouts: Sequence[Rollout]) -> None:
    """Each function has been checked for itself; two of them must not use the same id either."""
    key_of: dict[int, str] = {}
    for rollout in rollouts:
        key = f"{_KEY}s.{rollout.problem.function}" if rollout.problem.function else _KEY
        other = key_of.setdefault(rollout.rollout_id, key)
        if other != key:
            raise RolloutError(
                f"{other} and {key} both returned rollout_id {rollout.rollout_id}: every rollout needs its own id."
            )
