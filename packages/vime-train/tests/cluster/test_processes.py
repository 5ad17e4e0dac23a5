"""What a run leaves is found by its mark, and ended; nothing else is touched."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vime_train.cluster import _processes, _scratch
from vime_train.cluster._environment import RUN_TOKEN, applied


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"], env={**os.environ, RUN_TOKEN: "0badcafe"}) as process:
        while not Path(f"/proc/{process.pid}/environ").read_bytes():  # empty for a moment while the program is loaded
            time.sleep(0.01)
        yield process
        process.kill()


def test_only_marked_processes_are_found(sleeper: subprocess.Popen[bytes]) -> None:
    assert _processes.find("0badcafe") == [sleeper.pid]
    assert _processes.find("0badcaf") == []
    assert _processes.find("0badcafe0") == []


def test_processes_that_do_not_end_by_themselves_are_killed(sleeper: subprocess.Popen[bytes]) -> None:
    assert _processes.end("0badcafe", patience_seconds=0.1) == [sleeper.pid]
    assert sleeper.wait() == -9


def test_a_process_that_ends_by_itself_is_not_killed() -> None:
    with subprocess.Popen(["sleep", "0.2"], env={**os.environ, RUN_TOKEN: "0badcafe"}) as process:
        assert _processes.end("0badcafe", patience_seconds=30) == []
        assert process.wait() == 0


def test_nothing_to_end() -> None:
    assert _processes.end("0badcafe", patience_seconds=0) == []


DEAD_RUN = """
import os, subprocess
from vime_train.cluster._scratch import Scratch
from vime_train.cluster._environment import RUN_TOKEN
scratch = Scratch(weight_bytes=0)
(scratch.memory / "weights-0").mkdir()
left = subprocess.Popen(["sleep", "60"], env={**os.environ, RUN_TOKEN: scratch.token}, stdout=subprocess.DEVNULL)
print(scratch.memory, scratch.disk, left.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def test_the_next_launch_sweeps_what_a_killed_run_left_behind() -> None:
    dead = subprocess.run([sys.executable, "-c", DEAD_RUN], stdout=subprocess.PIPE, text=True, check=False)
    assert dead.returncode == -9
    memory, disk, left = dead.stdout.split()
    assert Path(memory, "weights-0").is_dir()
    assert Path("/proc", left).exists()
    assert {Path(memory), Path(disk)} <= set(_scratch.sweep())
    assert not Path(memory).exists()
    assert not Path(disk).exists()
    assert left not in [str(pid) for pid in _processes.find(Path(memory).name[-8:])]


def test_a_living_run_is_not_swept() -> None:
    scratch = _scratch.Scratch(weight_bytes=0)
    try:
        _scratch.sweep()
        assert scratch.memory.is_dir()
        assert scratch.disk.is_dir()
    finally:
        scratch.remove()
    assert not scratch.memory.exists()
    assert not scratch.disk.exists()


def test_a_living_run_that_another_container_started_is_not_swept() -> None:
    """Its process id means nothing here; its lock does."""
    scratch = _scratch.Scratch(weight_bytes=0)
    elsewhere = scratch.memory.rename(scratch.memory.with_name(f"vime-{2**30}-{scratch.token}"))
    try:
        assert elsewhere not in _scratch.sweep()
        assert elsewhere.is_dir()
    finally:
        scratch.remove()
        assert elsewhere in _scratch.sweep()
    assert not elsewhere.exists()


def test_a_dead_run_is_swept_also_when_its_process_id_was_given_away_again() -> None:
    stale = Path("/dev/shm") / f"vime-{os.getpid()}-00c0ffee"
    stale.mkdir()
    assert stale in _scratch.sweep()
    assert not stale.exists()


def test_what_is_not_a_run_is_not_swept() -> None:
    other = Path("/dev/shm") / "vime-notes"
    other.mkdir()
    try:
        _scratch.sweep()
        assert other.is_dir()
    finally:
        other.rmdir()


def test_weights_that_shared_memory_has_no_room_for_go_to_the_disk() -> None:
    scratch = _scratch.Scratch(weight_bytes=2**62)
    try:
        assert scratch.memory == scratch.disk
        assert not scratch.memory.is_relative_to("/dev/shm")
    finally:
        scratch.remove()
    assert not scratch.disk.exists()


def test_variables_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIME_A", "before")
    monkeypatch.delenv("VIME_B", raising=False)
    with applied({"VIME_A": "1", "VIME_B": "2"}):
        assert (os.environ["VIME_A"], os.environ["VIME_B"]) == ("1", "2")
    assert os.environ["VIME_A"] == "before"
    assert "VIME_B" not in os.environ
