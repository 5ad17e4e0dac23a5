"""Where a run keeps what must not outlive it: weights on their way to the engines, sockets, rendezvous files.

Always true:

- the name of a scratch directory tells the process it belongs to, so a later launch can tell a dead run's from a
  living one's, also after the process id was given away again;
- after `sweep` no directory and no process of a dead run is left.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import uuid
from pathlib import Path

from vime_train.cluster import _processes

_SHARED_MEMORY = Path("/dev/shm")
_NAME = re.compile(r"vime-(\d+)-(\d+)-([0-9a-f]{8})")


class Scratch:
    """Two directories of one run: `memory` for weights (in shared memory where there is some), `disk` for the rest."""

    def __init__(self) -> None:
        self.token = uuid.uuid4().hex[:8]
        name = f"vime-{os.getpid()}-{_processes.start_time(os.getpid()) or 0}-{self.token}"
        self.memory, self.disk = (root / name for root in _roots())
        for path in {self.memory, self.disk}:
            path.mkdir(mode=0o700)

    def remove(self) -> None:
        """Remove both directories."""
        for path in (self.memory, self.disk):
            shutil.rmtree(path, ignore_errors=True)


def sweep() -> list[Path]:
    """Remove the directories of runs whose process is gone, with the processes they left; returns what was removed."""
    removed = []
    for root in set(_roots()):
        for path in root.glob("vime-*"):
            match = _NAME.fullmatch(path.name)
            if match is None or path.stat().st_uid != os.getuid():
                continue
            pid, started, token = int(match[1]), int(match[2]), match[3]
            if _processes.start_time(pid) != started:
                _processes.end(token, patience_seconds=0)
                shutil.rmtree(path, ignore_errors=True)
                removed.append(path)
    return removed


def _roots() -> tuple[Path, Path]:
    # the short name keeps Ray's socket paths below the 107 bytes that Linux allows
    disk = Path(tempfile.gettempdir())
    return (_SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else disk), disk
