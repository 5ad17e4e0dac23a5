"""What a run leaves is found by its mark, and ended; nothing else is touched."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from vime_train.cluster import _processes, _scratch
from vime_train.cluster._environment import RUN_TOKEN, applied


@pytest.fixture
def own_roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """Shared memory and disk that no other launch sweeps: runs that begin meanwhile sweep the machine's."""
    with tempfile.TemporaryDirectory(prefix="tests-", dir="/dev/shm") as memory:
        monkeypatch.setattr(_scratch, "_SHARED_MEMORY", Path(memory))
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        yield Path(memory), tmp_path


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


@pytest.mark.parametrize(("title", "found"), [("ray::DashboardAgent", True), ("tail", False)])
def test_rays_processes_are_known_by_their_files_where_a_title_covers_the_mark(
    tmp_path: Path, title: str, found: bool
) -> None:
    """Others may look at the same file, and are left alone."""
    log = tmp_path / "vime-1-0badcafe" / "ray" / "agent.log"
    log.parent.mkdir(parents=True)
    log.touch()
    with subprocess.Popen(["bash", "-c", f"exec -a {title} sleep 60 3< {log}"]) as process:
        while title.encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")[0]:
            time.sleep(0.01)
        assert (process.pid in _processes.find("0badcafe")) == found
        process.kill()


def test_processes_that_do_not_end_by_themselves_are_killed(sleeper: subprocess.Popen[bytes]) -> None:
    assert _processes.end("0badcafe", patience_seconds=0.1) == [sleeper.pid]
    assert sleeper.wait() == -9


def test_a_process_that_ends_by_itself_is_not_killed() -> None:
    with subprocess.Popen(["sleep", "0.2"], env={**os.environ, RUN_TOKEN: "0badcafe"}) as process:
        assert _processes.end("0badcafe", patience_seconds=30) == []
        assert process.wait() == 0


def test_a_program_that_is_just_being_loaded_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a moment it shows no environment, so that one look finds nothing."""
    looks = iter([[], [1000], [], [1001], []])
    killed: list[int] = []
    monkeypatch.setattr(_processes, "find", lambda token: next(looks, []))
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append(pid))
    assert _processes.end("0badcafe", patience_seconds=0) == [1000, 1001]
    assert killed == [1000, 1001]


def test_nothing_to_end() -> None:
    assert _processes.end("0badcafe", patience_seconds=0) == []


DEAD_RUN = """
import os, subprocess, sys, tempfile
from pathlib import Path
from vime_train.cluster import _scratch
from vime_train.cluster._environment import RUN_TOKEN
_scratch._SHARED_MEMORY, tempfile.tempdir = Path(sys.argv[1]), sys.argv[2]
scratch = _scratch.Scratch(weight_bytes=0)
(scratch.memory / "weights-0").mkdir()
left = subprocess.Popen(["sleep", "60"], env={**os.environ, RUN_TOKEN: scratch.token}, stdout=subprocess.DEVNULL)
print(scratch.memory, scratch.disk, left.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def test_the_next_launch_sweeps_what_a_killed_run_left_behind(own_roots: tuple[Path, Path]) -> None:
    script = [sys.executable, "-c", DEAD_RUN, *map(str, own_roots)]
    dead = subprocess.run(script, stdout=subprocess.PIPE, text=True, check=False)
    assert dead.returncode == -9
    memory, disk, left = dead.stdout.split()
    assert (Path(memory).parent, Path(disk).parent) == own_roots
    assert Path(memory, "weights-0").is_dir()
    assert Path("/proc", left).exists()
    assert set(_scratch.sweep()) == {Path(memory), Path(disk)}
    assert not Path(memory).exists()
    assert not Path(disk).exists()
    assert left not in [str(pid) for pid in _processes.find(Path(memory).name[-8:])]


@pytest.mark.usefixtures("own_roots")
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


@pytest.mark.usefixtures("own_roots")
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


def test_a_dead_run_is_swept_also_when_its_process_id_was_given_away_again(own_roots: tuple[Path, Path]) -> None:
    stale = own_roots[0] / f"vime-{os.getpid()}-00c0ffee"
    stale.mkdir()
    assert stale in _scratch.sweep()
    assert not stale.exists()


def test_launches_may_sweep_at_the_same_time(own_roots: tuple[Path, Path]) -> None:
    for number in range(200):
        (own_roots[0] / f"vime-{number}-00c0ffee").mkdir()
    with ThreadPoolExecutor(2) as launches:
        for swept in [launches.submit(_scratch.sweep) for _ in range(2)]:
            swept.result()
    assert list(own_roots[0].iterdir()) == []


def test_what_is_not_a_run_is_not_swept(own_roots: tuple[Path, Path]) -> None:
    other = own_roots[0] / "vime-notes"
    other.mkdir()
    _scratch.sweep()
    assert other.is_dir()


def test_runs_leave_their_files_where_every_launch_sweeps() -> None:
    scratch = _scratch.Scratch(weight_bytes=0)
    try:
        assert (scratch.memory.parent, scratch.disk.parent) == (Path("/dev/shm"), Path(tempfile.gettempdir()))
    finally:
        scratch.remove()


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
