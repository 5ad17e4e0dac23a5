"""Engines that die or freeze are noticed and replaced, in calls and between them. Real processes, really killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vime_train.cluster import ActorError, Cluster, ClusterError, EnginePool, _engines
from vime_train.cluster._actors import logged_process
from vime_train.config import EngineSection

INTERVAL, TIMEOUT = 0.2, 4.0
NOTICED_SECONDS = 60.0


class Clerk:
    """What an engine's process holds here: it tells which weights it began with, and waits when asked to."""

    def __init__(self, *, model_path: str, version: int, **others: object) -> None:
        self._weights = (model_path, version)

    def generate(self, requests: list[float]) -> list[object]:
        for seconds in requests:
            time.sleep(seconds)
        return [self._weights for _ in requests]

    def load_weights(self, directory: str, *, version: int) -> None:
        self._weights = (directory, version)


def make_clerk(**arguments: object) -> object:
    return Clerk(**arguments)  # type: ignore[arg-type]


Make = Callable[..., EnginePool]


@pytest.fixture
def pool_of(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Pools whose processes hold clerks instead of vLLM."""
    monkeypatch.setattr(_engines, "make_engine", make_clerk)
    made: list[EnginePool] = []

    def make(engines: int = 1, **fields: float) -> EnginePool:
        section = EngineSection(
            engines=engines, health_interval_seconds=INTERVAL, health_timeout_seconds=TIMEOUT, **fields
        )
        pool = EnginePool(
            lambda index: cluster._spawn(f"clerk-{index}", {}),
            section=section,
            model_path="start",
            max_model_len=8,
            seed=0,
            native={},
        )
        made.append(pool)
        pool.ready()
        return pool

    yield make
    for pool in made:
        pool.close()


def until(true: Callable[[], bool]) -> None:
    """Wait for what has a limit of its own; the limit here only ends a test that fails."""
    end = time.monotonic() + NOTICED_SECONDS
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def answers(pool: EnginePool, *seconds: float) -> list[object]:
    return list(pool.generate(list(seconds)))  # type: ignore[arg-type]


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_an_engine_that_ends_or_freezes_between_calls_is_replaced_with_the_newest_weights(
    pool_of: Make, number: signal.Signals
) -> None:
    """No call waits for it: only the watch can see it."""
    pool = pool_of(engines=2)
    pool.load_weights("newest", version=7)
    first, second = pool.process_ids()
    os.kill(first, number)
    until(lambda: pool.restarts == 1 and gone(first))
    assert answers(pool, 0, 0) == [("newest", 7)] * 2
    assert pool.process_ids()[0] != first
    assert pool.process_ids()[1] == second
    assert pool.restarts == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_work_of_an_engine_that_ends_or_freezes_in_a_call_is_redone(pool_of: Make, number: signal.Signals) -> None:
    """Frozen, it would otherwise hold the call for `generate_timeout_seconds`, ten minutes."""
    pool = pool_of()
    pool.load_weights("newest", version=3)
    (pid,) = pool.process_ids()
    timer = threading.Timer(0.3, os.kill, (pid, number))
    timer.start()
    assert answers(pool, 1.0, 0.0) == [("newest", 3)] * 2
    timer.join()
    assert pool.restarts == 1
    until(lambda: gone(pid))


def test_a_busy_engine_is_not_taken_for_a_frozen_one(pool_of: Make) -> None:
    pool = pool_of()
    assert answers(pool, TIMEOUT + 5 * INTERVAL) == [("start", -1)]
    assert pool.restarts == 0


def test_weights_that_come_while_an_engine_is_replaced_reach_the_new_one(pool_of: Make) -> None:
    pool = pool_of()
    os.kill(pool.process_ids()[0], signal.SIGKILL)
    until(lambda: pool.restarts == 1)
    pool.load_weights("newest", version=9)
    assert answers(pool, 0) == [("newest", 9)]


def test_an_engine_that_dies_too_often_ends_the_run_when_it_is_needed(pool_of: Make) -> None:
    pool = pool_of(max_restarts=0)
    (pid,) = pool.process_ids()
    os.kill(pid, signal.SIGKILL)
    until(lambda: not any(thread.name.startswith("health of") for thread in threading.enumerate()))
    for _ in range(2):
        with pytest.raises(ActorError, match=r"clerk-0 failed 1 times, more than `engine\.max_restarts` allows \(0\)"):
            answers(pool, 0)


def test_a_closed_pool_starts_nothing_again(pool_of: Make) -> None:
    pool = pool_of()
    (pid,) = pool.process_ids()
    waiting = threading.Timer(0.3, pool.close)
    waiting.start()
    with pytest.raises(ActorError, match="clerk-0, asked to answer 1 requests, died"):
        answers(pool, 60)
    waiting.join()
    assert pool.restarts == 0
    until(lambda: gone(pid))
    with pytest.raises(ClusterError, match="clerk-0, asked to answer 1 requests, was told to end"):
        answers(pool, 0)
    assert not any(thread.name.startswith("health of") for thread in threading.enumerate())


def test_the_process_of_a_log_is_the_one_that_wrote_last(tmp_path: Path) -> None:
    log = tmp_path / "engine-0.log"
    assert logged_process(log) is None
    log.write_text("process 12\nsubprocess 7\nprocess 340\nanother\n")
    assert logged_process(log) == 340
