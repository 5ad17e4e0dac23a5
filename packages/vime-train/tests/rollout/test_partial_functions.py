"""Functions of the user's in runs whose answers take several iterations: what they must do, and what is told if not."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from vime_train.config import RunConfig
from vime_train.data.arithmetic import ArithmeticSums
from vime_train.plugins.exercise import exercise
from vime_train.rollout import (
    Collector,
    Problem,
    RewardError,
    Rollout,
    RolloutContext,
    RolloutError,
    generate_rollouts,
)

SOURCE = ArithmeticSums()
Make = Callable[..., RunConfig]
ONCE = "rollout.max_attempts=1"
PARTIAL = ("rollout.partial_rollout=true", ONCE, "rollout.max_new_tokens=32")


def collect(collector: Collector, engine: Any, iteration: int) -> tuple[Rollout, ...]:
    """Iteration `k` samples under weights `k - 1`."""
    engine.version = iteration - 1
    return collector.collect(engine).rollouts


def ends_in_two_parts(prompt: str, sample: int, seed: int) -> str:
    return "1" * 6 if prompt.endswith("=") else "1"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> str:
    """An import path of this module."""
    monkeypatch.setitem(sys.modules, "plugins_of_test_partial_functions", sys.modules[__name__])
    return "plugins_of_test_partial_functions"


def forgets_resumed(engine: Any, problems: Sequence[Problem], context: RolloutContext) -> list[Rollout]:
    return generate_rollouts(engine, problems, replace(context, resumed=()))


def drops_one(engine: Any, problems: Sequence[Problem], context: RolloutContext) -> list[Rollout]:
    return generate_rollouts(engine, problems, replace(context, resumed=context.resumed[1:]))


def begins_again(engine: Any, problems: Sequence[Problem], context: RolloutContext) -> list[Rollout]:
    shortened = [
        replace(one, samples=(replace(one.samples[0], tokens=(*one.samples[0].tokens[:-1], 9)),))
        for one in context.resumed
    ]
    return generate_rollouts(engine, problems, replace(context, resumed=tuple(shortened)))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("forgets_resumed", r"group ids \[0, 1, 2, 3\] are missing"),
        ("drops_one", r"was given the unfinished rollouts \[0, 1, 2, 3, 4\] in context\.resumed"),
        ("begins_again", r"rollout 0 of context\.resumed without the \d+ tokens that it had"),
    ],
)
def test_a_rollout_function_that_does_not_go_on_is_told(
    scripted_engine: Any, small_run: Make, here: str, name: str, message: str
) -> None:
    config = small_run(*PARTIAL, "rollout.max_new_tokens_per_iteration=4", f"rollout.function={here}:{name}")
    collector = Collector(config, SOURCE)
    engine = scripted_engine(lambda *_: "1" * 20)
    collect(collector, engine, 1)
    with pytest.raises(RolloutError, match=message):
        collect(collector, engine, 2)


def test_a_rollout_function_is_exercised_with_answers_to_go_on_with(small_run: Make, here: str) -> None:
    """What `vime-train check-plugin` does for a run with partial rollouts."""
    config = small_run(*PARTIAL, "rollout.max_new_tokens_per_iteration=4")
    checked = exercise("vime_train.rollout.attempts:generate_rollouts", "rollout.function", config)
    assert re.search(r"4 iterations gave [1-9]\d* rollouts", checked[-1])
    with pytest.raises(RolloutError, match=r"group ids \[.*\] are missing"):
        exercise(f"{here}:forgets_resumed", "rollout.function", config)


def leaves_unfinished(engine: Any, problems: Sequence[Problem], context: RolloutContext) -> list[Rollout]:
    rollouts = generate_rollouts(engine, problems, context)
    return [replace(one, samples=(replace(one.samples[0], status="aborted"),)) for one in rollouts]


def test_an_unfinished_answer_that_nothing_goes_on_with_is_told(
    scripted_engine: Any, small_run: Make, here: str
) -> None:
    collector = Collector(small_run(ONCE, f"rollout.function={here}:leaves_unfinished"), SOURCE)
    with pytest.raises(RolloutError, match=r"rollout 0 with an aborted sample: nothing goes on with it"):
        collector.collect(scripted_engine(lambda *_: "123"))


FAILS: list[bool] = []


def failing_reward(problem: Problem, answer: str, *, finished: bool) -> float:
    if FAILS:
        raise ValueError("no judge")
    return 0.0


def test_an_iteration_that_fails_leaves_the_buffer_as_it_was(scripted_engine: Any, small_run: Make, here: str) -> None:
    config = small_run(*PARTIAL, "rollout.max_new_tokens_per_iteration=4", f"rollout.reward={here}:failing_reward")
    collector, engine = Collector(config, SOURCE), scripted_engine(ends_in_two_parts)
    collect(collector, engine, 1)
    before = collector.buffer
    FAILS.append(True)
    with pytest.raises(RewardError):
        collect(collector, engine, 2)
    FAILS.clear()
    assert collector.buffer == before
