"""One run at a time in a run directory.

Always true: the hold ends with the process that has it, however that ends; another process is told instead of writing
over what this one writes.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vime_train.state._errors import StateError


@contextmanager
def held(root: Path) -> Iterator[None]:
    """Hold a run directory for the block. A file system that knows no locks gives none.

    Raises:
        StateError: another process holds it.
    """
    descriptor = os.open(root, os.O_RDONLY)
    try:
        with suppress(OSError):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise StateError(
                    f"{root} is the directory of a run that is still going on: end that first, or wait for it."
                ) from error
        yield
    finally:
        os.close(descriptor)
