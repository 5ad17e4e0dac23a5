"""Problems that name the function which answers them, or the one that judges them: keys of the configuration's tables.

Always true: data chooses among the functions that the configuration lists, and can name no other code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

from vime_train.rollout._check import RolloutError

if TYPE_CHECKING:
    from vime_train.config import RolloutSection
    from vime_train.rollout._samples import Problem


def check_names(problems: Iterable[Problem], section: RolloutSection) -> None:
    """Refuse a problem that names what `rollout.functions` or `rollout.rewards` do not have.

    Raises:
        RolloutError: with the problem, the name, and those that there are.
    """
    for problem in problems:
        _check(problem, problem.function, section.functions, "rollout.functions")
        _check(problem, problem.reward, section.rewards, "rollout.rewards")


def _check(problem: Problem, name: str, known: Mapping[str, str], table: str) -> None:
    if not name or name in known:
        return
    close = get_close_matches(name, known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    has = f"which has {', '.join(sorted(known))}" if known else "which has no entry"
    raise RolloutError(f"problem {problem.problem_id!r} names {name!r} of [{table}], {has}.{hint}")
