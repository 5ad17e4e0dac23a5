"""Files and directories that are whole or absent.

Always true: a reader sees the old content or the new content, also if the writer or the machine dies in between,
because the new content is on disk under another name before it takes the name. A write that fails, as on a full disk,
leaves the old content and nothing else.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vime_train._files import writing

WRITING = ".writing-"
"""Prefix of a name that is still being written; what bears it after a crash is rubbish."""
REPLACED = ".replaced-"
"""Prefix of a directory whose name another is about to take; after a crash in between it is the one to keep."""


def write_text(path: Path, text: str) -> None:
    """Replace `path` by a file that holds `text`."""
    aside = path.with_name(WRITING + path.name)
    try:
        with writing(path):
            aside.write_text(text)
            _sync(aside)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    aside.replace(path)
    _sync(path.parent)


@contextmanager
def directory(path: Path) -> Iterator[Path]:
    """Give a directory to write into; it takes the name `path` when the block ends, and vanishes if it raises.

    What stood at `path` stands there until then.
    """
    aside = path.with_name(WRITING + path.name)
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        yield aside
        for file in (aside, *aside.rglob("*")):
            _sync(file)
        _take_name(aside, path)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    _sync(path.parent)


def recover(root: Path) -> None:
    """Clear up below `root` after a writer that died: what it had begun goes, what it had put aside comes back."""
    for old in root.glob(REPLACED + "*"):
        path = old.with_name(old.name.removeprefix(REPLACED))
        if path.exists():
            shutil.rmtree(old)
        else:
            old.rename(path)
    for unfinished in root.glob(WRITING + "*"):
        shutil.rmtree(unfinished)


def _take_name(aside: Path, path: Path) -> None:
    if not path.exists():
        aside.rename(path)
        return
    old = path.with_name(REPLACED + path.name)
    path.rename(old)
    aside.rename(path)
    shutil.rmtree(old)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
