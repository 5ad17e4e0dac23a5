"""Where a run keeps what must not outlive it: weights on their way to the engines, sockets, rendezvous files.

Always true:

- a run holds a lock in each of its directories for as long as its process lives, however that ends; so a later launch
  can tell a dead run's directory from a living one's, also when the two see different process ids (containers that
  share a mount);
- after `sweep` no directory of a dead run is left, and none of its processes that can be seen from here.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import uuid
from pathlib import Path

from vime_train.cluster import _processes

_SHARED_MEMORY = Path("/dev/shm")
_NAME = re.compile(r"vime-\d+-([0-9a-f]{8})")
_LOCK = "lock"


class Scratch:
    """Two directories of one run: `memory` for weights, in shared memory where it has room, and `disk` for the rest.

    Args:
        weight_bytes: room that the weights on their way will need. Containers often have 64 MiB of shared memory.
    """

    def __init__(self, *, weight_bytes: int) -> None:
        self.token = uuid.uuid4().hex[:8]
        # the short name keeps Ray's socket paths below the 107 bytes that Linux allows
        name = f"vime-{os.getpid()}-{self.token}"
        self._locks: dict[Path, int] = {}
        self.disk = self._make(_disk() / name)
        self.memory = self._make(_SHARED_MEMORY / name) if _has_room(_SHARED_MEMORY, weight_bytes) else self.disk

    def remove(self) -> None:
        """Remove both directories."""
        for path, lock in self._locks.items():
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)
        self._locks.clear()

    def _make(self, path: Path) -> Path:
        # locked before it takes a name that `sweep` looks at
        aside = path.with_name(f".{path.name}")
        aside.mkdir(mode=0o700)
        lock = os.open(aside / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        aside.rename(path)
        self._locks[path] = lock
        return path


def sweep() -> list[Path]:
    """Remove the directories of runs that are gone, with the processes they left; returns what was removed."""
    removed = []
    for root in (_SHARED_MEMORY, _disk()):
        for path in root.glob("vime-*"):
            match = _NAME.fullmatch(path.name)
            if match is not None and _is_own(path) and not _is_held(path / _LOCK):
                _processes.end(match[1], patience_seconds=0)
                shutil.rmtree(path, ignore_errors=True)
                removed.append(path)
    return removed


def _is_own(path: Path) -> bool:
    try:
        return path.stat().st_uid == os.getuid()
    except FileNotFoundError:  # its run has just removed it, or another launch
        return False


def _is_held(lock: Path) -> bool:
    try:
        descriptor = os.open(lock, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _disk() -> Path:
    return Path(tempfile.gettempdir())


def _has_room(root: Path, needed: int) -> bool:
    return os.access(root, os.W_OK) and shutil.disk_usage(root).free >= needed
