"""Problems that name the function which answers or judges them: the right one is called, once, and no other code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vime_train._job import Job
from vime_train.config import RunConfig
from vime_train.data.arithmetic import ArithmeticSums
from vime_train.plugins import PluginError
from vime_train.report import PlainProgress, reported
from vime_train.rollout import (
    Collector,
    Problem,
    Rollout,
    RolloutContext,
    RolloutError,
    batch_advantages,
    generate_rollouts,
    load_rollouts,
    save_rollouts,
)

Make = Callable[..., RunConfig]
CALLED: list[tuple[str, ...]] = []


class Mixed(ArithmeticSums):
    """Every second problem is answered by `tool`, every third judged by `parts`; there are 12 of them."""

    wrong = ""

    @property
    def num_problems(self) -> int:  # type: ignore[override]
        return 12

    def problems(self, count: int, *, seed: int, start: int) -> list[Problem]:
        found = super().problems(count, seed=seed, start=start)
        return [
            replace(
                problem,
                problem_id=f"row {place}",
                function="tool" if place % 2 else "",
                reward=(self.wrong if place == 9 and self.wrong else "parts") if place % 3 == 0 else "",
            )
            for place, problem in enumerate(found, start=start)
        ]


class Misspelt(Mixed):
    wrong = "part"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(sys.modules, "plugins_of_test_named", sys.modules[__name__])
    CALLED.clear()
    return "plugins_of_test_named"


@pytest.fixture
def named(small_run: Make, here: str) -> Make:
    """A small run over the mixed problems."""

    def make(*overrides: str) -> RunConfig:
        return small_run(
            f"data.source={here}:Mixed",
            f"rollout.functions.tool={here}:tool",
            f"rollout.rewards.parts={here}:parts",
            "rollout.reward_key=right",
            "rollout.max_attempts=1",
            *overrides,
        )

    return make


def tool(engine: Any, problems: Sequence[Problem], context: RolloutContext) -> list[Rollout]:
    CALLED.append(tuple(problem.problem_id for problem in problems))
    return generate_rollouts(engine, problems, context)[::-1]


def keeps_one(engine: Any, problems: Sequence[Problem], context: RolloutContext) -> list[Rollout]:
    return [one for one in generate_rollouts(engine, problems, context) if one.group_id != context.group_ids[-1]]


def takes_ids(engine: Any, problems: Sequence[Problem], context: RolloutContext) -> list[Rollout]:
    """Ids of its own, from 0 on, as if it were alone."""
    found = generate_rollouts(engine, problems, context)
    return [
        replace(one, rollout_id=place, samples=tuple(replace(sample, rollout_id=place) for sample in one.samples))
        for place, one in enumerate(found)
    ]


def parts(problem: Problem, answer: str, *, finished: bool) -> dict[str, float]:
    return {"right": float(answer == f"#{problem.answer}"), "length": float(len(answer))}


def no_keywords(problem: Problem, answer: str) -> float:
    return 0.0


def guess(prompt: str, sample: int, seed: int) -> str:
    return f"#{seed % 20}"


def rest_of_eleven(prompt: str, sample: int, seed: int) -> str:
    return "1" * (11 - len(prompt.partition("=")[2]))


def test_each_problem_is_answered_by_its_function_and_all_stand_in_order(named: Make, scripted_engine: Any) -> None:
    collector = Collector(named(), Mixed())
    first, second = (collector.collect(scripted_engine(guess)).rollouts for _ in range(2))
    assert CALLED == [("row 1", "row 3"), ("row 5", "row 7")]
    for rollouts, groups in ((first, range(4)), (second, range(4, 8))):
        assert [rollout.group_id for rollout in rollouts] == [group for group in groups for _ in range(4)]
        assert all(rollout.problem.problem_id == f"row {rollout.group_id}" for rollout in rollouts)
    default = Collector(named("rollout.functions.tool=vime_train.rollout.attempts:generate_rollouts"), Mixed())
    by_id = {rollout.rollout_id: rollout for rollout in default.collect(scripted_engine(guess)).rollouts}
    assert {rollout.rollout_id: rollout for rollout in first} == by_id


def test_answers_that_go_on_come_back_to_their_function(named: Make, scripted_engine: Any) -> None:
    config = named(
        "rollout.partial_rollout=true", "rollout.max_new_tokens=32", "rollout.max_new_tokens_per_iteration=8"
    )
    collector, engine = Collector(config, Mixed()), scripted_engine(rest_of_eleven)
    assert collector.collect(engine).rollouts == ()
    rollouts = collector.collect(engine).rollouts
    assert [rollout.group_id for rollout in rollouts] == [group for group in range(4) for _ in range(4)]
    assert CALLED == [("row 1", "row 3"), ()]


def test_parts_are_reported_as_means_and_kept(named: Make, scripted_engine: Any, tmp_path: Path) -> None:
    from vime_train.rollout import assemble

    config = named()
    rollouts = Collector(config, Mixed()).collect(scripted_engine(guess)).rollouts
    judged = [rollout for rollout in rollouts if rollout.group_id in (0, 3)]
    assert {rollout.group_id for rollout in rollouts if rollout.reward_parts} == {0, 3}
    figures = reported(assemble(rollouts, config, iteration=1).metrics)
    lengths = [rollout.samples[0].response_length - 1 for rollout in judged]
    assert figures["reward/length"] == pytest.approx(sum(lengths) / len(lengths))
    assert "reward/right" not in figures
    save_rollouts(rollouts, tmp_path / "saved")
    assert tuple(load_rollouts(tmp_path / "saved")) == rollouts
    assert len(batch_advantages(rollouts, config.algorithm)) == len(rollouts)


def tries(problem: Problem, answer: str, *, finished: bool) -> dict[str, float]:
    """The first answer is `1`, the second `22`, the third `333`; the second is the best."""
    return {"right": {1: 0.2, 2: 0.9, 3: 0.3}[len(answer)], "length": float(len(answer))}


def test_parts_are_those_of_the_attempt_that_gave_the_reward(small_run: Make, here: str, scripted_engine: Any) -> None:
    config = small_run(
        f"rollout.reward={here}:tries",
        "rollout.reward_key=right",
        "rollout.max_attempts=3",
        "rollout.solved_score=2.0",
    )
    engine = scripted_engine(
        lambda prompt, sample, seed: "1" if "?" not in prompt else str(11 ** prompt.count("?") * 2)
    )
    for rollout in Collector(config, ArithmeticSums()).collect(engine).rollouts:
        assert [sample.response_length - 1 for sample in rollout.samples] == [1, 2, 3]
        assert rollout.reward == pytest.approx(0.45)
        assert rollout.reward_parts == {"length": 2.0}


def test_parts_of_an_earlier_iteration_are_kept_while_the_next_answer_goes_on(
    small_run: Make, here: str, scripted_engine: Any
) -> None:
    """The first answer is judged in iteration 1, the second one is cut there and ends, not better, in iteration 2."""
    config = small_run(
        f"rollout.reward={here}:parts",
        "rollout.reward_key=length",
        "rollout.solved_score=99",
        "rollout.retry_reward=0.0",
        "rollout.partial_rollout=true",
        "rollout.max_new_tokens=32",
        "rollout.max_new_tokens_per_iteration=10",
    )

    def script(prompt: str, sample: int, seed: int) -> str:
        _, _, second = prompt.partition("?")
        return ("1" * 14)[len(second) :] if "?" in prompt else "#0"

    collector, engine = Collector(config, ArithmeticSums()), scripted_engine(script)
    assert collector.collect(engine).rollouts == ()
    rollouts = collector.collect(engine).rollouts
    assert {(rollout.reward, *rollout.reward_parts.items()) for rollout in rollouts} == {(2.0, ("right", 0.0))}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("keeps_one", r"rollout\.functions\.tool = '.*keeps_one' returned .* group ids \[3\] are missing"),
        ("takes_ids", r"rollout\.function and rollout\.functions\.tool both returned rollout_id 0"),
    ],
)
def test_a_named_function_that_misbehaves_is_told(
    named: Make, scripted_engine: Any, here: str, function: str, message: str
) -> None:
    collector = Collector(named(f"rollout.functions.tool={here}:{function}"), Mixed())
    with pytest.raises(RolloutError, match=message):
        collector.collect(scripted_engine(guess))


def test_a_name_that_there_is_not_is_told_with_its_row_before_anything_starts(
    named: Make, here: str, tmp_path: Path
) -> None:
    """Row 9 would be drawn in the third iteration."""
    config = named(f"data.source={here}:Misspelt", f"run_dir={tmp_path}/run")
    with pytest.raises(RolloutError, match=r"problem 'row 9' names 'part' of \[rollout\.rewards\], which has parts\."):
        Job.new(config, PlainProgress())
    assert not (tmp_path / "run").exists()


def test_an_endless_source_is_checked_as_it_is_drawn(small_run: Make, scripted_engine: Any) -> None:
    collector = Collector(small_run(), Mixed())
    with pytest.raises(RolloutError, match=r"'row 0' names 'parts' of \[rollout\.rewards\], which has no entry"):
        collector.collect(scripted_engine(guess))


def test_named_functions_are_checked_as_the_others_are(named: Make, here: str) -> None:
    config = named(f"rollout.rewards.parts={here}:no_keywords")
    with pytest.raises(PluginError, match=r"rollout\.rewards\.parts = '.*' takes \(problem, answer\); it is called as"):
        Collector(config, Mixed())
