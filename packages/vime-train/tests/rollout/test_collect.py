"""Collecting: data positions, filters, and rollout functions that misbehave."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vime_train.config import RunConfig
from vime_train.data.arithmetic import ArithmeticSums
from vime_train.plugins import PluginError
from vime_train.rollout import (
    Collector,
    DumpError,
    Problem,
    RewardError,
    Rollout,
    RolloutContext,
    RolloutError,
    assemble,
    generate_rollouts,
)

SOURCE = ArithmeticSums()
Make = Callable[..., RunConfig]


def guess(prompt: str, sample: int, seed: int) -> str:
    return f"#{(seed + sample) % 30}"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> str:
    """An import path of this module."""
    monkeypatch.setitem(sys.modules, "plugins_of_test_collect", sys.modules[__name__])
    return "plugins_of_test_collect"


def test_iterations_draw_on_and_ids_never_repeat(scripted_engine: Any, small_run: Make) -> None:
    collector = Collector(small_run(), SOURCE)
    engine = scripted_engine(guess)
    first, second = collector.collect(engine).rollouts, collector.collect(engine).rollouts
    assert [rollout.problem for rollout in (*first, *second)][::4] == SOURCE.problems(8, seed=0, start=0)
    ids = [rollout.rollout_id for rollout in (*first, *second)]
    assert len(set(ids)) == len(ids) == 32


def test_a_restored_collector_goes_on_with_the_same_rollouts(scripted_engine: Any, small_run: Make) -> None:
    collector = Collector(small_run(), SOURCE)
    collector.collect(scripted_engine(guess))
    state = collector.state()
    expected = collector.collect(scripted_engine(guess)).rollouts
    other = Collector(small_run(), SOURCE)
    other.restore(state)
    assert other.collect(scripted_engine(guess)).rollouts == expected


def even_group(group: Sequence[Rollout]) -> bool:
    return group[0].group_id % 2 == 0


def no_group(group: Sequence[Rollout]) -> bool:
    return False


def failing_filter(group: Sequence[Rollout]) -> bool:
    raise ZeroDivisionError("oops")


def figures(collected: Any) -> tuple[float, ...]:
    return tuple(collected.metrics[f"rollout/groups_{name}"].value for name in ("generated", "rejected", "surplus"))


def test_a_group_filter_draws_on_until_there_are_enough(scripted_engine: Any, small_run: Make, here: str) -> None:
    config = small_run(f"rollout.group_filter={here}:even_group", "rollout.max_draws=5")
    collector = Collector(config, SOURCE)
    collected = collector.collect(scripted_engine(guess))
    assert [rollout.group_id for rollout in collected.rollouts[::4]] == [0, 2, 4, 6]
    assert figures(collected) == (8, 4, 0)
    assert collector.state() == {"position": 8, "iteration": 1}


def test_a_group_filter_stops_at_the_last_draw(scripted_engine: Any, small_run: Make, here: str) -> None:
    config = small_run(f"rollout.group_filter={here}:no_group", "rollout.max_draws=3")
    collected = Collector(config, SOURCE).collect(scripted_engine(guess))
    assert collected.rollouts == ()
    assert figures(collected) == (12, 12, 0)


def test_surplus_groups_are_counted(scripted_engine: Any, small_run: Make, here: str) -> None:
    """3 prompts per draw, even groups of 0..5 are 0, 2, 4: exactly enough; with 1 draw more, one is left over."""
    config = small_run(
        f"rollout.group_filter={here}:even_group", "rollout.max_draws=3", "rollout.prompts_per_iteration=3"
    )
    collector = Collector(config, SOURCE)
    assert figures(collector.collect(scripted_engine(guess))) == (6, 3, 0)
    collector.restore({"position": 4, "iteration": 1})
    collected = collector.collect(scripted_engine(guess))
    assert [rollout.group_id for rollout in collected.rollouts[::4]] == [4, 6, 8]
    assert figures(collected) == (6, 3, 0)
    config = small_run(f"rollout.group_filter={here}:even_group", "rollout.max_draws=3")
    wide = config.model_copy(update={"rollout": config.rollout.model_copy(update={"prompts_per_iteration": 5})})
    assert figures(Collector(wide, SOURCE).collect(scripted_engine(guess))) == (10, 5, 0)


def first_half(rollouts: list[Rollout]) -> list[Rollout]:
    return rollouts[: len(rollouts) // 2]


def test_a_sample_filter_chooses_what_is_trained(scripted_engine: Any, small_run: Make, here: str) -> None:
    config = small_run(f"rollout.sample_filter={here}:first_half")
    assert len(Collector(config, SOURCE).collect(scripted_engine(guess)).rollouts) == 8


def test_saved_rollouts_are_loaded_instead_of_generated(scripted_engine: Any, small_run: Make, tmp_path: Path) -> None:
    """Train-only: the same rollouts, iteration by iteration, and no request to an engine."""
    saving = Collector(small_run("debug.save_rollouts=true", f"run_dir={tmp_path}"), SOURCE)
    made = [saving.collect(scripted_engine(guess)) for _ in range(2)]
    engine = scripted_engine(guess)
    loading = Collector(small_run(f"debug.load_rollouts={tmp_path}/rollouts"), SOURCE)
    found = [loading.collect(engine) for _ in range(2)]
    assert [one.rollouts for one in found] == [one.rollouts for one in made]
    assert [one.weight_version for one in (*found, *made)] == [None, None, 0, 1]
    assert not engine.requests
    with pytest.raises(DumpError, match=r"iteration-000003/rollouts\.jsonl: there is no such file"):
        loading.collect(engine)


def test_an_iteration_in_which_every_group_was_rejected_is_planned_as_nothing(
    scripted_engine: Any, small_run: Make, here: str
) -> None:
    config = small_run(f"rollout.group_filter={here}:no_group")
    collected = Collector(config, SOURCE).collect(scripted_engine(guess))
    batch = assemble(collected.rollouts, config, iteration=1)
    assert batch.schedule is None
    assert batch.metrics["rollout/rollouts"].value == 0


def returns_none(engine: Any, problems: Sequence[Problem], context: RolloutContext) -> None:
    return None


def returns_nothing(engine: Any, problems: Sequence[Problem], context: RolloutContext) -> list[Rollout]:
    return []


def forgets_one(engine: Any, problems: Sequence[Problem], context: RolloutContext) -> list[Rollout]:
    return generate_rollouts(engine, problems[:-1], context)


def same_id(engine: Any, problems: Sequence[Problem], context: RolloutContext) -> list[Rollout]:
    rollouts = generate_rollouts(engine, problems, context)
    return [*rollouts, rollouts[0]]


def no_samples(engine: Any, problems: Sequence[Problem], context: RolloutContext) -> list[Rollout]:
    return [replace(rollout, samples=()) for rollout in generate_rollouts(engine, problems, context)]


def nan_reward(engine: Any, problems: Sequence[Problem], context: RolloutContext) -> list[Rollout]:
    return [replace(rollout, reward=float("nan")) for rollout in generate_rollouts(engine, problems, context)]


def short_log_probs(engine: Any, problems: Sequence[Problem], context: RolloutContext) -> list[Rollout]:
    return [
        replace(rollout, samples=tuple(replace(sample, rollout_log_probs=()) for sample in rollout.samples))
        for rollout in generate_rollouts(engine, problems, context)
    ]


def all_response(engine: Any, problems: Sequence[Problem], context: RolloutContext) -> list[Rollout]:
    return [
        replace(
            rollout, samples=tuple(replace(one, tokens=one.tokens[-one.response_length :]) for one in rollout.samples)
        )
        for rollout in generate_rollouts(engine, problems, context)
    ]


def other_ids(engine: Any, problems: Sequence[Problem], context: RolloutContext) -> list[Rollout]:
    return [
        replace(rollout, samples=tuple(replace(sample, rollout_id=99) for sample in rollout.samples))
        for rollout in generate_rollouts(engine, problems, context)
    ]


def raises(engine: Any, problems: Sequence[Problem], context: RolloutContext) -> list[Rollout]:
    raise ConnectionError("no tool server")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("returns_none", "returned None: a list of vime_train.rollout.Rollout is needed"),
        ("returns_nothing", r"returned 0 rollouts: group ids \[0, 1, 2, 3\] are missing"),
        ("forgets_one", r"returned 12 rollouts: group ids \[3\] are missing"),
        ("same_id", "returned rollout_id 0 twice"),
        ("no_samples", "rollout 0 whose samples are empty"),
        ("nan_reward", "rollout 0 whose reward is nan"),
        ("short_log_probs", "and 0 log-probs for a response of"),
        ("all_response", r"sample 0 has response_length \d+ of \d+ tokens"),
        ("other_ids", "sample 0 has other ids than its rollout"),
        ("raises", r"raised ConnectionError: no tool server \(at .*test_collect\.py:\d+\); given 4 problems"),
    ],
)
def test_a_rollout_function_that_misbehaves_is_told(
    scripted_engine: Any, small_run: Make, here: str, name: str, message: str
) -> None:
    collector = Collector(small_run(f"rollout.function={here}:{name}"), SOURCE)
    with pytest.raises(RolloutError, match=rf"rollout\.function = 'plugins_of_test_collect:{name}'.*{message}"):
        collector.collect(scripted_engine(guess))


class Short(ArithmeticSums):
    def problems(self, count: int, *, seed: int, start: int) -> list[Problem]:
        return super().problems(count - 1, seed=seed, start=start)


class Long(ArithmeticSums):
    def problems(self, count: int, *, seed: int, start: int) -> list[Problem]:
        return [replace(one, prompt_tokens=(2,) * 33) for one in super().problems(count, seed=seed, start=start)]


class Broken(ArithmeticSums):
    def problems(self, count: int, *, seed: int, start: int) -> list[Problem]:
        raise OSError("the disk is gone")


class Empty(ArithmeticSums):
    def problems(self, count: int, *, seed: int, start: int) -> list[Problem]:
        return [replace(one, prompt_tokens=()) for one in super().problems(count, seed=seed, start=start)]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (Short(), "gave 3 problems when asked for 4"),
        (Long(), r"gave problem '[a-j\d]+=' with 33 prompt tokens: 1 to data\.max_prompt_tokens = 32 are needed"),
        (Empty(), "with 0 prompt tokens"),
        (Broken(), r"raised OSError: the disk is gone .*; given count=4, start=0"),
    ],
)
def test_a_data_source_that_misbehaves_is_told(
    scripted_engine: Any, small_run: Make, source: ArithmeticSums, message: str
) -> None:
    with pytest.raises(RolloutError, match=message):
        Collector(small_run(), source).collect(scripted_engine(guess))


def test_a_filter_that_raises_is_told_with_the_problem(scripted_engine: Any, small_run: Make, here: str) -> None:
    collector = Collector(small_run(f"rollout.group_filter={here}:failing_filter"), SOURCE)
    with pytest.raises(RolloutError, match=r"raised ZeroDivisionError: oops .*the rollouts of problem 'a"):
        collector.collect(scripted_engine(guess))


def test_a_reward_that_raises_passes_through_the_rollout_function(
    scripted_engine: Any, small_run: Make, here: str
) -> None:
    collector = Collector(small_run(f"rollout.reward={here}:failing_reward"), SOURCE)
    with pytest.raises(RewardError, match=r"rollout\.reward = .*failing_reward' raised ValueError: bad answer"):
        collector.collect(scripted_engine(guess))


def failing_reward(problem: Problem, answer: str, *, finished: bool) -> float:
    raise ValueError("bad answer")


@pytest.mark.parametrize("key", ["function", "reward", "group_reward", "group_filter", "sample_filter"])
def test_a_function_that_cannot_be_called_is_refused_when_the_collector_is_made(
    small_run: Make, here: str, key: str
) -> None:
    with pytest.raises(PluginError, match=rf"rollout\.{key} = '{here}:takes_nothing' takes \(\); it is called"):
        Collector(small_run(f"rollout.{key}={here}:takes_nothing"), SOURCE)


def takes_nothing() -> None:
    """No extension point calls this."""
