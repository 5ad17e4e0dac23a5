"""Whole runs through the command line: Ray, vLLM and Megatron, nothing simulated.

A run takes about 20 s, so each is made once and looked at by many tests: `straight` goes through undisturbed;
`troubled` is the same run that met every kind of death on its way.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import pytest

HERE = Path(__file__).parent
CONFIG = HERE / "tiny.toml"
COMMAND = Path(sys.executable).with_name("vime-train")
LIMIT_SECONDS = 400


@dataclass
class Watched:
    """A finished process and what a watcher saw while it ran."""

    pid: int
    code: int = 0
    output: str = ""
    errors: str = ""
    listeners: set[str] = field(default_factory=set)
    processes: set[int] = field(default_factory=set)


def marked(directory: Path) -> list[int]:
    """Processes of the runs that were started for this directory."""
    mark = f"VIME_TEST={directory}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                environment = (entry / "environ").read_bytes()
                zombie = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            except OSError:
                continue
            if mark in environment.split(b"\0") and not zombie:
                found.append(int(entry.name))
    return found


def listeners(processes: list[int]) -> set[str]:
    """Local addresses, in the kernel's hexadecimal, on which one of these processes listens."""
    sockets = set()
    for pid in processes:
        try:
            sockets |= {os.readlink(fd) for fd in (Path("/proc") / str(pid) / "fd").iterdir()}
        except OSError:
            continue
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == "0A" and f"socket:[{columns[9]}]" in sockets:
                found.add(columns[1].partition(":")[0])
    return found


def start(directory: Path, *arguments: str, fault: str = "") -> subprocess.Popen[str]:
    """Begin a command; its processes carry the directory's mark."""
    paths = [str(HERE / "plugins"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "VIME_TEST": str(directory),
        "VIME_FAULT": fault,
    }
    return subprocess.Popen(
        [str(COMMAND), *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_hear_ctrl_c,
    )


def _hear_ctrl_c() -> None:
    """As from a terminal: what nohup or a script started in the background inherits is to ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def watch(directory: Path, process: subprocess.Popen[str]) -> Watched:
    """Wait for the end, and note all listeners and processes on the way."""
    seen = Watched(pid=process.pid)
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.5):
            mine = marked(directory)
            seen.processes |= set(mine)
            seen.listeners |= listeners(mine)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        seen.output, seen.errors = process.communicate(timeout=LIMIT_SECONDS)
        seen.code = process.returncode
    finally:
        process.kill()
        over.set()
        watcher.join()
    return seen


Run = Callable[..., Watched]


@pytest.fixture(scope="session")
def command() -> Run:
    """Runs `vime-train` to its end: `command(directory, *arguments, fault="")`."""

    def run(directory: Path, *arguments: str, fault: str = "") -> Watched:
        return watch(directory, start(directory, *arguments, fault=fault))

    return run


@pytest.fixture(scope="session")
def begin() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Begins `vime-train` and returns at once; what still runs is killed at the end."""
    begun: list[subprocess.Popen[str]] = []

    def run(directory: Path, *arguments: str) -> subprocess.Popen[str]:
        begun.append(start(directory, *arguments))
        return begun[-1]

    yield run
    for process in begun:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def end() -> Run:
    """Waits for what `begin` began."""
    return watch


@pytest.fixture(scope="session")
def left() -> Callable[[Path, list[int]], list[str]]:
    """What is left of the runs of a directory, by their drivers' ids: processes, and files in shared memory or /tmp."""

    def look(directory: Path, drivers: list[int]) -> list[str]:
        roots = (Path("/dev/shm"), Path(tempfile.gettempdir()))
        files = [str(path) for root in roots for pid in drivers for path in root.glob(f"vime-{pid}-*")]
        return [f"process {pid}" for pid in marked(directory)] + files

    return look


@dataclass(frozen=True)
class Life:
    """A run directory and the end of every command that worked on it."""

    root: Path
    stages: MappingProxyType[str, Watched]

    def metrics(self) -> list[dict[str, float]]:
        return [json.loads(line) for line in (self.root / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="session")
def straight(tmp_path_factory: pytest.TempPathFactory, command: Run) -> Life:
    """The undisturbed run."""
    root = tmp_path_factory.mktemp("straight") / "run"
    done = command(root, "run", str(CONFIG), "--set", f"run_dir={root}")
    assert done.code == 0, done.errors
    return Life(root, MappingProxyType({"run": done}))


@pytest.fixture(scope="session")
def troubled(tmp_path_factory: pytest.TempPathFactory, command: Run) -> Life:
    """The same run, with a death or a full disk in every iteration but the first, and a checkpoint that is damaged."""
    root = tmp_path_factory.mktemp("troubled") / "run"
    stages = {"reward raises": command(root, "run", str(CONFIG), "--set", f"run_dir={root}", fault="raise@2")}
    for name, fault in {
        "engine and trainer killed": "kill-engine@2 kill-trainer@3",
        "disk full for the trainers": "disk-full@3",
        "disk full for the driver": "driver-disk-full@3",
        "driver killed": "SIGKILL@4",
        "driver asked to end": "SIGTERM@5",
        "driver interrupted": "SIGINT@6",
    }.items():
        stages[name] = command(root, "resume", str(root), fault=fault)
    newest = root / "checkpoints" / "iteration-000005"
    state = newest / "trainer" / "trainer-00001.safetensors"
    state.write_bytes(state.read_bytes()[:-1000])
    stages["newest checkpoint damaged"] = command(root, "resume", str(root))
    shutil.rmtree(newest)  # as the message says
    stages["to the end"] = command(root, "resume", str(root))
    return Life(root, MappingProxyType(stages))
