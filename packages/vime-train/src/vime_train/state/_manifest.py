"""The files of a checkpoint and their sizes, by which one that lost something is told from one that is whole.

Always true of `damage(directory, sizes(directory))`: it is None until a file below the directory is removed, cut off or
grows; files that are added are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def sizes(directory: Path) -> dict[str, int]:
    """Bytes of every file below a directory, by its path from there."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.stat().st_size for path in files}


def damage(directory: Path, expected: Mapping[str, int]) -> str | None:
    """The first file that is not as long as it was when it was written, if there is one."""
    found = sizes(directory)
    for name, size in expected.items():
        if name not in found:
            return f"{directory / name} is missing"
        if found[name] != size:
            return f"{directory / name} has {found[name]} of {size} bytes"
    return None
