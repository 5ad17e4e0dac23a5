"""Calls end: with a result, with the cause of the first failure, or at their time limit."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable
from subprocess import Popen

import pytest

from vime_train.cluster import ActorError
from vime_train.cluster._calls import Handle, call, start, wait

Spawn = Callable[[str], Handle]


def hold(handle: Handle, make: Callable[..., object], **arguments: object) -> None:
    wait([start(handle, make, arguments)], timeout_seconds=60, setting="cluster.start_timeout_seconds")


def test_results_come_in_the_order_of_the_calls(spawn: Spawn) -> None:
    handles = [spawn(f"list-{index}") for index in range(2)]
    for handle in handles:
        hold(handle, list)
        wait([call(handle, "append", handle.name, doing="append")], timeout_seconds=60, setting="x")
    calls = [call(handle, "pop", doing="pop") for handle in reversed(handles)]
    assert wait(calls, timeout_seconds=60, setting="x") == ["list-1", "list-0"]


def test_an_exception_names_the_process_the_cause_and_its_log(spawn: Spawn) -> None:
    handle = spawn("empty-list")
    hold(handle, list)
    with pytest.raises(
        ActorError, match="empty-list, asked to pop an item, failed: IndexError: pop from empty"
    ) as info:
        wait([call(handle, "pop", doing="pop an item")], timeout_seconds=60, setting="x")
    assert info.value.how == "raised"
    assert info.value.name == "empty-list"
    assert isinstance(info.value.__cause__, IndexError)
    assert "Traceback (most recent call last)" in str(info.value)  # from the actor's log


def test_an_object_that_cannot_be_made_is_a_failure(spawn: Spawn) -> None:
    handle = spawn("never-made")
    with pytest.raises(ActorError, match=r"never-made, asked to start, failed: TypeError: dict.fromkeys"):
        hold(handle, dict.fromkeys, colour="red")


def test_a_call_that_takes_too_long_names_the_setting(spawn: Spawn) -> None:
    handle = spawn("sleeper")
    hold(handle, threading.Event)
    with pytest.raises(ActorError, match=r"sleeper, asked to rest, did not answer within 0\.2 s: raise `a\.b`") as info:
        wait([call(handle, "wait", 30, doing="rest")], timeout_seconds=0.2, setting="a.b")
    assert info.value.how == "late"


def test_a_killed_process_ends_the_wait(spawn: Spawn) -> None:
    handle = spawn("victim")
    hold(handle, threading.Event)
    under_way = call(handle, "wait", 60, doing="rest")
    os.kill(_pid_in_log(handle), signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(ActorError, match="victim, asked to rest, died: its process is gone") as info:
        wait([under_way], timeout_seconds=60, setting="x")
    assert info.value.how == "died"
    assert time.monotonic() - began < 30


def test_the_death_is_told_and_not_the_lost_connection_that_follows(spawn: Spawn) -> None:
    """A peer of a dead trainer raises first, when its collective breaks; the death is what the user must know."""
    victim, peer = spawn("victim"), spawn("peer")
    hold(victim, threading.Event)
    hold(peer, list)
    calls = [call(peer, "pop", doing="reduce"), call(victim, "wait", 60, doing="reduce")]
    os.kill(_pid_in_log(victim), signal.SIGKILL)
    with pytest.raises(ActorError, match="victim, asked to reduce, died"):
        wait(calls, timeout_seconds=60, setting="x")


def test_the_first_failure_ends_the_wait_for_the_others(spawn: Spawn) -> None:
    raiser, sleeper = spawn("raiser"), spawn("sleeper")
    hold(raiser, list)
    hold(sleeper, threading.Event)
    calls = [call(sleeper, "wait", 60, doing="rest"), call(raiser, "pop", doing="pop")]
    began = time.monotonic()
    with pytest.raises(ActorError, match="raiser, asked to pop"):
        wait(calls, timeout_seconds=60, setting="x")
    assert time.monotonic() - began < 30


def test_output_of_child_processes_and_native_code_goes_to_the_log(spawn: Spawn) -> None:
    handle = spawn("writer")
    hold(handle, Popen, args=["sh", "-c", "echo to-stdout; echo to-stderr >&2"])
    wait([call(handle, "wait", doing="wait")], timeout_seconds=60, setting="x")
    lines = handle.log.read_text().splitlines()
    assert lines[0] == f"process {handle.process_id()}"
    assert {"to-stdout", "to-stderr"} <= set(lines)


def test_lines_of_a_log_tell_time_role_and_rank(spawn: Spawn) -> None:
    handle = spawn("trainer-7")
    hold(handle, list)
    wait([call(handle, "append", 1, doing="append")], timeout_seconds=60, setting="x")
    process, *lines = handle.log.read_text().splitlines()
    assert process == f"process {handle.process_id()}"
    assert [re.fullmatch(r"\d\d:\d\d:\d\d trainer-7 INFO (\w+): \d+\.\d\d s", line)[1] for line in lines] == [  # type: ignore[index]
        "start",
        "append",
    ]


def _pid_in_log(handle: Handle) -> int:
    lines = [line for line in handle.log.read_text().splitlines() if line.startswith("process ")]
    return int(lines[-1].split()[1])
