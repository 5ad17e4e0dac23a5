"""Find and end the processes of a run, by a mark in their environment or the files they hold. Linux.

Always true: only processes of the run are touched, and never the caller.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from vime_train.cluster._environment import RUN_TOKEN

_PROC = Path("/proc")
_LOOKS = 3


def find(token: str) -> list[int]:
    """Ids of the living processes, other than this one, whose environment carries the run's token.

    Ray's processes write their titles over the first variables of that, in whatever order these came; they are known by
    the files that they hold open in the run's directory.
    """
    found = []
    for entry in _PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        # a process may end while it is looked at, or belong to someone else
        with contextlib.suppress(OSError):
            if (_carries(entry, token) or _is_rays(entry, token)) and not _is_zombie(entry):
                found.append(int(entry.name))
    return found


def _carries(entry: Path, token: str) -> bool:
    return f"{RUN_TOKEN}={token}".encode() in (entry / "environ").read_bytes().split(b"\0")


def _is_rays(entry: Path, token: str) -> bool:
    if not (entry / "cmdline").read_bytes().startswith(b"ray::"):
        return False
    for file in (entry / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it has just been closed
            if f"-{token}/" in os.readlink(file):
                return True
    return False


def kill(pid: int | None, token: str) -> None:
    """Kill one process of the run; does nothing if it is gone, or its number is another process's by now."""
    if pid in find(token):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def end(token: str, *, patience_seconds: float) -> list[int]:
    """Wait for the run's processes to end by themselves; kill the ones that have not by then, and name them."""
    deadline = time.monotonic() + patience_seconds
    while find(token) and time.monotonic() < deadline:
        time.sleep(0.05)
    killed: list[int] = []
    # killing a parent may reveal a child that was just being started, and a program that is just being loaded shows no
    # environment, so look again until none was seen a few times
    unseen = 0
    for _ in range(100):
        left = find(token)
        unseen = 0 if left else unseen + 1
        if unseen == _LOOKS:
            break
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed += [pid for pid in left if pid not in killed]
        time.sleep(0.05)
    return killed


def _is_zombie(entry: Path) -> bool:
    return (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
