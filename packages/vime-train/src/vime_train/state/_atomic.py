"""Files and directories that are whole or absent.

Always true: a reader sees the old content or the new content, also if the writer or the machine dies in between,
because the new content is on disk under another name before it takes the name.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WRITING = ".writing-"
"""Prefix of a name that is still being written; what bears it after a crash is rubbish."""


def write_text(path: Path, text: str) -> None:
    """Replace `path` by a file that holds `text`."""
    aside = path.with_name(WRITING + path.name)
    aside.write_text(text)
    _sync(aside)
    aside.replace(path)
    _sync(path.parent)


@contextmanager
def directory(path: Path) -> Iterator[Path]:
    """Give a directory to write into; it takes the name `path` when the block ends, and vanishes if it raises."""
    aside = path.with_name(WRITING + path.name)
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        yield aside
        for file in (aside, *aside.rglob("*")):
            _sync(file)
        aside.rename(path)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
