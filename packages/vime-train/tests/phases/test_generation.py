"""Rollouts generated ahead are those that would be generated when they are wanted; none is lost, no thread is left."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from vime_train.cluster import EnginePool
from vime_train.config import RunConfig
from vime_train.data.arithmetic import ArithmeticSums
from vime_train.engine import Completion, GenerationRequest
from vime_train.phases import Generation
from vime_train.report import reported
from vime_train.rollout import Collector, DumpError, RolloutError

SOURCE = ArithmeticSums()
Make = Callable[..., RunConfig]
PARTIAL = ("rollout.partial_rollout=true", "rollout.max_attempts=1", "rollout.over_sampling_prompts=6")


class Pool:
    """A scripted engine that waits at a gate, fails when told to, and says when it is over."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.gate = threading.Event()
        self.gate.set()
        self.closed = False
        self.broken = False

    def generate(self, requests: Sequence[GenerationRequest]) -> list[list[Completion]]:
        assert self.gate.wait(30)
        if self.closed or self.broken:
            raise RolloutError("the engine is broken" if self.broken else "the engines were told to end")
        answers: list[list[Completion]] = self._engine.generate(requests)
        return answers

    def close(self) -> None:
        self.closed = True
        self.gate.set()


def guess(prompt: str, sample: int, seed: int) -> str:
    return f"#{seed % 20}"


def generation_of(collector: Collector, pool: Pool) -> Generation:
    return Generation(collector, cast(EnginePool, pool))


@pytest.fixture
def pool(scripted_engine: Any) -> Pool:
    return Pool(scripted_engine(guess))


@pytest.mark.parametrize("overrides", [(), PARTIAL])
def test_what_is_generated_ahead_is_what_would_be_generated_when_wanted(
    small_run: Make, pool: Pool, overrides: tuple[str, ...]
) -> None:
    config = small_run(*overrides)
    ahead, now = (generation_of(Collector(config, SOURCE), pool) for _ in range(2))
    for _ in range(4):
        ahead.begin(version=0)
        ahead.wait()
        found, expected = ahead.take(version=7), now.take(version=0)
        assert found.rollouts == expected.rollouts
        assert reported(found.metrics) == reported(expected.metrics)
        assert found.weight_version == expected.weight_version == 0


def test_it_works_while_others_do_and_wait_ends_when_the_engines_are_idle(small_run: Make, pool: Pool) -> None:
    generation = generation_of(Collector(small_run(), SOURCE), pool)
    pool.gate.clear()
    generation.begin(version=3)
    threading.Timer(0.1, pool.gate.set).start()
    assert list(generation.wait()) == ["time/generate_hidden"]
    assert pool.gate.is_set()
    assert generation.take(version=4).weight_version == 3


def test_nothing_was_hidden_where_nothing_was_begun(small_run: Make, pool: Pool) -> None:
    assert generation_of(Collector(small_run(), SOURCE), pool).wait() == {}


def test_a_failure_is_told_at_once_and_raised_where_the_rollouts_are_wanted(
    small_run: Make, pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    collector = Collector(small_run(*PARTIAL), SOURCE)
    generation = generation_of(collector, pool)
    generation.take(version=0)
    before, waiting = collector.state(), collector.buffer
    pool.broken = True
    with caplog.at_level(logging.WARNING):
        generation.begin(version=0)
        generation.wait()
    assert "the engine is broken" in caplog.text
    assert (collector.state(), collector.buffer) == (before, waiting)
    with pytest.raises(RolloutError, match="the engine is broken"):
        generation.take(version=1)
    pool.broken = False
    assert generation.take(version=1).rollouts[0].group_id == 4


def test_a_checkpoint_keeps_what_was_generated_ahead(small_run: Make, pool: Pool, tmp_path: Path) -> None:
    collector = Collector(small_run(*PARTIAL), SOURCE)
    generation = generation_of(collector, pool)
    generation.take(version=0)
    generation.begin(version=0)
    generation.wait()
    generation.save(tmp_path / "ahead")
    generation.save(tmp_path / "again")
    resumed = generation_of(Collector(small_run(*PARTIAL), SOURCE), pool)
    resumed.load(tmp_path / "ahead")
    resumed.save(tmp_path / "before it was taken")
    found, expected = resumed.take(version=1), generation.take(version=1)
    assert found.rollouts == expected.rollouts
    assert reported(found.metrics) == reported(expected.metrics)
    assert found.weight_version == 0
    assert (tmp_path / "before it was taken" / "rollouts.jsonl").is_file()


def test_nothing_is_kept_of_a_generation_that_failed_or_was_never_begun(
    small_run: Make, pool: Pool, tmp_path: Path
) -> None:
    generation = generation_of(Collector(small_run(), SOURCE), pool)
    generation.save(tmp_path / "ahead")
    pool.broken = True
    generation.begin(version=0)
    generation.wait()
    generation.save(tmp_path / "ahead")
    assert list(tmp_path.iterdir()) == []
    generation.load(tmp_path / "ahead")


@pytest.mark.parametrize("text", ["", "{}", '{"metrics": {}}'])
def test_a_damaged_checkpoint_is_named(small_run: Make, pool: Pool, tmp_path: Path, text: str) -> None:
    (tmp_path / "figures.json").write_text(text)
    with pytest.raises(DumpError, match=r"figures\.json: cannot be read"):
        generation_of(Collector(small_run(), SOURCE), pool).load(tmp_path)


def test_the_end_of_the_run_ends_the_generation_that_is_under_way(
    small_run: Make, pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    pool.gate.clear()
    with caplog.at_level(logging.WARNING), generation_of(Collector(small_run(), SOURCE), pool) as generation:
        generation.begin(version=0)
    assert [thread.name for thread in threading.enumerate() if thread.name == "generation"] == []
    assert caplog.text == ""


def test_a_disk_without_room_leaves_the_groups_that_wait(small_run: Make, pool: Pool, tmp_path: Path) -> None:
    """The rollouts are saved after the buffer has given its groups away."""
    (tmp_path / "rollouts").mkdir()
    config = small_run(*PARTIAL, "debug.save_rollouts=true", f"run_dir={tmp_path}")
    collector = Collector(config, SOURCE)
    generation = generation_of(collector, pool)
    generation.take(version=0)
    waiting = collector.buffer
    assert len(waiting.groups) == 2
    (tmp_path / "rollouts").rename(tmp_path / "elsewhere")
    (tmp_path / "rollouts").write_text("a file where a directory was")
    with pytest.raises(OSError, match="rollouts"):
        generation.take(version=0)
    assert collector.buffer == waiting


def test_staleness_is_how_far_the_trainers_are_ahead(small_run: Make, pool: Pool) -> None:
    collector = Collector(small_run("rollout.one_step_off_policy=true"), SOURCE)
    figures = [reported(collector.collect(cast(EnginePool, pool), weight_version=0).metrics) for _ in range(3)]
    assert [one["rollout/staleness"] for one in figures] == [0, 1, 2]
    assert [one["rollout/off_policy_tokens"] for one in figures] == [0, 1, 1]
