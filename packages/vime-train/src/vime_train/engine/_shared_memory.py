"""Leave no shared memory behind, whatever ends an engine of several processes.

The processes of vLLM meet in files of `/dev/shm`, hundreds of megabytes that nobody removes when it is killed. Once
the engine has started, all of them have mapped these, and a file without a name goes with the last that did. Linux.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_MAPPED = re.compile(r" (/dev/shm/(?:psm_|vllm).*)")  # the names that Python and vLLM give


def forget_names() -> list[Path]:
    """Unlink the files of `/dev/shm` that this process and those below it have mapped; returns them."""
    found: set[Path] = set()
    for process in _family():
        with suppress(OSError):  # it has just ended
            found |= {Path(name) for name in _MAPPED.findall(Path(f"/proc/{process}/maps").read_text())}
    for path in found:
        path.unlink(missing_ok=True)
    return sorted(found)


def _family() -> Iterator[int]:
    """This process and all below it."""
    below = defaultdict(list)
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit():
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                below[parent].append(int(entry.name))
    waiting = [os.getpid()]
    while waiting:
        yield (process := waiting.pop())
        waiting += below[process]
