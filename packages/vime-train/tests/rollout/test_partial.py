"""Rollouts that take several iterations, and groups that wait: nothing is lost, nothing is longer than it may be."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from vime_train.config import RunConfig
from vime_train.data.arithmetic import ArithmeticSums
from vime_train.rollout import (
    Collector,
    DumpError,
    Rollout,
    save_rollouts,
)

SOURCE = ArithmeticSums()
Make = Callable[..., RunConfig]
ONCE = "rollout.max_attempts=1"
PARTIAL = ("rollout.partial_rollout=true", ONCE, "rollout.max_new_tokens=32")
several = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def steady(length: Callable[[str], int]) -> Callable[[str, int, int], str]:
    """A script whose answer to a problem is `length(problem)` digits, the next ones whenever it is asked to go on."""

    def script(prompt: str, sample: int, seed: int) -> str:
        problem, _, begun = prompt.partition("=")
        whole = "".join(str(place % 10) for place in range(length(problem)))
        assert whole.startswith(begun)
        return whole[len(begun) :]

    return script


def between(low: int, high: int) -> Callable[[str], int]:
    """Lengths that depend on the problem alone."""
    return lambda problem: random.Random(problem).randint(low, high)


def collect(collector: Collector, engine: Any, iteration: int) -> tuple[Rollout, ...]:
    """Iteration `k` samples under weights `k - 1`."""
    engine.version = iteration - 1
    return collector.collect(engine).rollouts


def response(rollout: Rollout) -> tuple[int, ...]:
    return rollout.samples[-1].tokens[-rollout.samples[-1].response_length :]


@several
@given(allowance=st.integers(1, 31), answer=st.integers(1, 40))
def test_an_answer_goes_on_to_its_end_or_to_the_limit(
    scripted_engine: Any, small_run: Make, allowance: int, answer: int
) -> None:
    """Fault #2261: the whole limit was given again to the rest of an answer."""
    config = small_run(*PARTIAL, f"rollout.max_new_tokens_per_iteration={allowance}")
    collector, engine = Collector(config, SOURCE), scripted_engine(steady(lambda _: answer))
    whole = (*engine.tokenizer.encode("".join(str(place % 10) for place in range(answer))), 1)[:32]
    iterations = -(-len(whole) // allowance)
    for iteration in range(1, iterations):
        assert collect(collector, engine, iteration) == ()
    rollouts = collect(collector, engine, iterations)
    assert [rollout.rollout_id for rollout in rollouts] == list(range(16))
    for rollout in rollouts:
        (sample,) = rollout.samples
        assert response(rollout) == whole
        assert sample.status == ("completed" if answer < 32 else "truncated")
        assert sample.token_versions == tuple(place // allowance for place in range(len(whole)))
        assert sample.rollout_log_probs == tuple(-0.1 * (place % allowance + 1) for place in range(len(whole)))
        assert sample.weight_version == iterations - 1
    for request in engine.requests:
        begun = len(request.prompt_tokens) - engine.tokenizer.decode(request.prompt_tokens).index("=") - 1
        assert request.max_new_tokens == min(allowance, 32 - begun)


def test_the_rest_of_an_answer_is_sampled_with_another_seed(scripted_engine: Any, small_run: Make) -> None:
    config = small_run(*PARTIAL, "rollout.max_new_tokens_per_iteration=4")
    collector, engine = Collector(config, SOURCE), scripted_engine(steady(lambda _: 15))
    for iteration in range(1, 4):
        collect(collector, engine, iteration)
    seeds = [request.seed for request in engine.requests]
    assert len(set(seeds)) == len(seeds)


@several
@given(allowance=st.integers(1, 12), iterations=st.integers(1, 9))
def test_the_mask_fits_the_answer_and_hides_older_weights(
    scripted_engine: Any, small_run: Make, allowance: int, iterations: int
) -> None:
    """Faults #2207 and #1440: the mask was cut or reset by length when the answer went on."""
    config = small_run(*PARTIAL, f"rollout.max_new_tokens_per_iteration={allowance}", "rollout.mask_off_policy=true")
    collector, engine = Collector(config, SOURCE), scripted_engine(steady(between(1, 30)))
    for iteration in range(1, iterations + 1):
        for rollout in collect(collector, engine, iteration):
            for sample in rollout.samples:
                assert len(sample.loss_mask) == sample.response_length
                assert sample.loss_mask == tuple(int(found == iteration - 1) for found in sample.token_versions)


def test_without_the_mask_older_tokens_are_trained_on(scripted_engine: Any, small_run: Make) -> None:
    config = small_run(*PARTIAL, "rollout.max_new_tokens_per_iteration=8")
    collector, engine = Collector(config, SOURCE), scripted_engine(steady(lambda _: 11))
    collect(collector, engine, 1)
    engine.version = 1
    collected = collector.collect(engine)
    assert {sample.loss_mask for rollout in collected.rollouts for sample in rollout.samples} == {(1,) * 12}
    assert collected.metrics["rollout/off_policy_tokens"].value == 8 / 12
    assert collected.metrics["rollout/rollouts_resumed"].value == 16


@several
@given(
    allowance=st.none() | st.integers(2, 20),
    drawn=st.integers(4, 12),
    iterations=st.integers(1, 8),
    max_draws=st.integers(1, 3),
)
@example(allowance=2, drawn=4, iterations=4, max_draws=2)
def test_every_group_is_handed_out_once_or_waits(
    scripted_engine: Any, small_run: Make, allowance: int | None, drawn: int, iterations: int, max_draws: int
) -> None:
    """Fault #2238: completed groups beyond what was wanted were lost."""
    limits = [f"rollout.max_new_tokens_per_iteration={allowance}"] if allowance else []
    config = small_run(*PARTIAL, f"rollout.over_sampling_prompts={drawn}", f"rollout.max_draws={max_draws}", *limits)
    collector, engine = Collector(config, SOURCE), scripted_engine(steady(between(1, 30)))
    handed: list[int] = []
    for iteration in range(1, iterations + 1):
        rollouts = collect(collector, engine, iteration)
        groups = [rollout.group_id for rollout in rollouts[::4]]
        assert [rollout.group_id for rollout in rollouts] == [group for group in groups for _ in range(4)]
        assert groups == sorted(groups)
        assert len(groups) <= 4
        handed += groups
    waiting = [group[0].group_id for group in collector.buffer.groups]
    assert sorted(handed + waiting) == list(range(collector.state()["position"]))
    assert len(waiting) <= drawn * max_draws


@pytest.mark.parametrize("max_draws", [1, 2])
def test_groups_that_wait_are_first_in_first_out(scripted_engine: Any, small_run: Make, max_draws: int) -> None:
    """6 groups are drawn, 4 are wanted: 2 wait, are the first of the next iteration, and count as drawn there."""
    config = small_run(*PARTIAL, "rollout.over_sampling_prompts=6", f"rollout.max_draws={max_draws}")
    collector = Collector(config, SOURCE)
    engine = scripted_engine(steady(lambda _: 3))
    groups = [[rollout.group_id for rollout in collect(collector, engine, k)[::4]] for k in (1, 2, 3)]
    assert groups == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    engine.version = 3
    metrics = collector.collect(engine).metrics
    assert (metrics["rollout/groups_generated"].value, metrics["rollout/groups_buffered"].value) == (4, 2)


def test_without_partial_rollout_no_group_waits(scripted_engine: Any, small_run: Make, here: str) -> None:
    config = small_run(ONCE, f"rollout.group_filter={here}:any_group", "rollout.over_sampling_prompts=6")
    collector = Collector(config, SOURCE)
    engine = scripted_engine(steady(lambda _: 3))
    groups = [[rollout.group_id for rollout in collector.collect(engine).rollouts[::4]] for _ in range(2)]
    assert groups == [[0, 1, 2, 3], [6, 7, 8, 9]]
    assert collector.buffer.groups == ()


def any_group(group: Sequence[Rollout]) -> bool:
    return True


JUDGED: list[int] = []


def even_group(group: Sequence[Rollout]) -> bool:
    assert all(rollout.is_finished for rollout in group)
    JUDGED.append(group[0].group_id)
    return group[0].group_id % 2 == 0


def test_a_group_is_judged_once_when_it_has_finished(scripted_engine: Any, small_run: Make, here: str) -> None:
    JUDGED.clear()
    config = small_run(
        *PARTIAL,
        f"rollout.group_filter={here}:even_group",
        "rollout.over_sampling_prompts=12",
        "rollout.max_new_tokens_per_iteration=10",
    )
    collector, engine = Collector(config, SOURCE), scripted_engine(steady(between(1, 30)))
    handed = [rollout.group_id for k in range(1, 8) for rollout in collect(collector, engine, k)[::4]]
    assert len(JUDGED) == len(set(JUDGED))
    assert handed
    assert all(group % 2 == 0 for group in handed)


def test_a_later_attempt_is_cut_and_goes_on_too(scripted_engine: Any, small_run: Make) -> None:
    """A wrong first answer of 3 tokens, then a second one of 15: the first is not made again."""

    def script(prompt: str, sample: int, seed: int) -> str:
        _, _, second = prompt.partition("?")
        return ("1" * 14)[len(second) :] if "?" in prompt else "#0"

    config = small_run(
        "rollout.partial_rollout=true", "rollout.max_new_tokens=32", "rollout.max_new_tokens_per_iteration=10"
    )
    collector, engine = Collector(config, SOURCE), scripted_engine(script)
    assert collect(collector, engine, 1) == ()
    for rollout in collect(collector, engine, 2):
        first, second = rollout.samples
        assert (first.response_length, first.token_versions, first.status) == (3, (0, 0, 0), "completed")
        assert (second.response_length, second.status) == (15, "completed")
        assert second.token_versions == (0,) * 10 + (1,) * 5
        assert rollout.reward == 0.0


@pytest.mark.parametrize("allowance", [[], ["rollout.max_new_tokens_per_iteration=7"]])
def test_a_buffer_that_was_saved_and_loaded_gives_the_same_numbers(
    scripted_engine: Any, small_run: Make, tmp_path: Path, allowance: list[str]
) -> None:
    config = small_run(*PARTIAL, "rollout.over_sampling_prompts=9", *allowance)
    collector, engine = Collector(config, SOURCE), scripted_engine(steady(between(1, 30)))
    for iteration in range(1, 4):
        collect(collector, engine, iteration)
    state = collector.state()
    collector.save_buffer(tmp_path / "buffer")
    other = Collector(config, SOURCE)
    other.restore(state)
    other.load_buffer(tmp_path / "buffer")
    assert other.buffer == collector.buffer
    assert other.buffer.groups
    for iteration in range(4, 9):
        assert collect(other, engine, iteration) == collect(collector, engine, iteration)


def test_a_buffer_that_is_missing_or_damaged_is_told(scripted_engine: Any, small_run: Make, tmp_path: Path) -> None:
    config = small_run(*PARTIAL, "rollout.over_sampling_prompts=9")
    collector = Collector(config, SOURCE)
    with pytest.raises(DumpError, match=r"buffer/rollouts\.jsonl: there is no such file"):
        collector.load_buffer(tmp_path / "buffer")
    collect(collector, scripted_engine(steady(lambda _: 3)), 1)
    collector.save_buffer(tmp_path / "buffer")
    columns = tmp_path / "buffer" / "columns.safetensors"
    columns.write_bytes(columns.read_bytes()[:-8])
    with pytest.raises(DumpError, match=r"columns\.safetensors: cannot be read"):
        collector.load_buffer(tmp_path / "buffer")


def test_a_run_without_partial_rollout_saves_no_buffer(small_run: Make, tmp_path: Path) -> None:
    collector = Collector(small_run(), SOURCE)
    collector.save_buffer(tmp_path / "buffer")
    assert not (tmp_path / "buffer").exists()
    collector.load_buffer(tmp_path / "buffer")


def test_an_unfinished_rollout_survives_a_dump(scripted_engine: Any, small_run: Make, tmp_path: Path) -> None:
    config = small_run(*PARTIAL, "rollout.max_new_tokens_per_iteration=4")
    collector = Collector(config, SOURCE)
    collect(collector, scripted_engine(steady(lambda _: 20)), 1)
    assert {rollout.samples[0].status for rollout in collector.buffer.unfinished} == {"aborted"}
    save_rollouts(collector.buffer.unfinished, tmp_path / "dump")
    assert b"pickle" not in (tmp_path / "dump" / "columns.safetensors").read_bytes()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> str:
    """An import path of this module."""
    monkeypatch.setitem(sys.modules, "plugins_of_test_partial", sys.modules[__name__])
    return "plugins_of_test_partial"
