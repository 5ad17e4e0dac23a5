"""Safetensors files by their headers alone, without torch and in milliseconds: 8 bytes of length, then JSON."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

Shapes = dict[str, tuple[int, ...]]


def stored_shapes(directory: Path) -> Shapes:
    """Shape by name of every tensor in the directory's safetensors files; those of a damaged file are left out."""
    headers = (_header(file) for file in sorted(directory.glob("*.safetensors")))
    return {
        name: tuple(entry["shape"])
        for header in headers
        if header is not None
        for name, entry in header.items()
        if name != "__metadata__"
    }


def damage(file: Path) -> str | None:
    """What is wrong with a file, whose header tells how long it has to be; None if it is whole."""
    size = file.stat().st_size
    length = _header_length(file)
    if not 0 < length <= size - 8:
        return f"has {size} bytes and is cut off in its header"
    header = _header(file)
    if header is None:
        return "has a header that cannot be read: it is damaged"
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    needed = 8 + length + max(ends, default=0)
    return None if needed == size else f"has {size} of {needed} bytes: it is cut off or damaged"


def _header_length(file: Path) -> int:
    with file.open("rb") as stream:
        begin = stream.read(8)
    return int(struct.unpack("<Q", begin)[0]) if len(begin) == 8 else 0


def _header(file: Path) -> dict[str, Any] | None:
    """The header, if it is one: every tensor has a shape, and offsets of its data."""
    length = _header_length(file)
    if length > file.stat().st_size:
        return None
    with file.open("rb") as stream:
        stream.seek(8)
        text = stream.read(length)
    try:
        header: dict[str, Any] = json.loads(text)
        entries = [entry for name, entry in header.items() if name != "__metadata__"]
        fits = all(isinstance(entry["shape"], list) and isinstance(entry["data_offsets"][1], int) for entry in entries)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return None
    return header if fits else None
