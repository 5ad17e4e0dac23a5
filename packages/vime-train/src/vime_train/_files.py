"""Errors of files that say which file: what writes and reads them does not.

Always true: a write that fails is an `OSError` with the file's name, also where safetensors wrote, which raises an
error of its own; a file that is cut off or damaged is a `ValueError` with its name.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

_NUMBER = re.compile(r"\(os error (\d+)\)")


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Write the file in here.

    >>> with writing("/dev/full"):
    ...     _ = Path("/dev/full").write_text("x")
    Traceback (most recent call last):
        ...
    OSError: [Errno 28] No space left on device: '/dev/full'
    """
    try:
        yield
    except SafetensorError as error:
        found = _NUMBER.search(str(error))
        number = int(found[1]) if found else errno.EIO
        raise OSError(number, os.strerror(number), str(path)) from error
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Read the file in here, whether it is JSON or safetensors.

    Raises:
        ValueError: it is cut off or damaged.
    """
    try:
        yield
    except (SafetensorError, UnicodeDecodeError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({error}): it is cut off or damaged") from error
