"""Rows of a data file: JSON Lines or Parquet, whole or a slice.

Always true: a row that cannot be read is a `DataError` with file and line; an empty file or slice is one too; nothing
is skipped in silence, and nothing is unpickled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vime_train.data._errors import DataError

_SLICE = re.compile(r"(?P<path>.+)@\[(?P<start>-?\d*):(?P<stop>-?\d*)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row: where it stands, for errors and ids, and its columns."""

    place: str
    columns: dict[str, Any]


def read_rows(location: str) -> list[Row]:
    """Rows of `path` or of `path@[start:stop]`, with bounds as in Python, negative ones included.

    Raises:
        DataError: if there is no such file, a row is damaged, or there is no row.
    """
    match = _SLICE.fullmatch(location)
    path, cut = (Path(match["path"]), _bounds(match)) if match else (Path(location), slice(None))
    if not path.is_file():
        raise DataError(f"{path}: there is no such file.")
    if path.suffix not in (".jsonl", ".parquet"):
        raise DataError(f"{path}: a file ending in .jsonl or .parquet is needed.")
    rows = list(_parquet(path) if path.suffix == ".parquet" else _jsonl(path))[cut]
    if not rows:
        raise DataError(f"{location}: there is no row in it.")
    return rows


def _bounds(match: re.Match[str]) -> slice:
    start, stop = match["start"], match["stop"]
    return slice(int(start) if start else None, int(stop) if stop else None)


def _jsonl(path: Path) -> Iterator[Row]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text at byte {error.start}: the file is damaged.") from error
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            columns = json.loads(line)
        except json.JSONDecodeError as error:
            cut = " The file has no newline at its end: it was cut off." if number == len(lines) else ""
            raise DataError(f"{place}: not valid JSON ({error.msg}): {_short(line)}.{cut}") from error
        if not isinstance(columns, dict):
            raise DataError(f"{place}: a JSON object is needed, got {_short(line)}.")
        yield Row(place=place, columns=columns)


def _parquet(path: Path) -> Iterator[Row]:
    if find_spec("pyarrow") is None:
        raise DataError(f'{path}: reading Parquet needs pyarrow: python -m pip install "vime-train[data]".')
    from pyarrow import ArrowException, parquet

    try:
        columns = parquet.read_table(path).to_pylist()
    except (ArrowException, OSError) as error:
        said = str(error).rstrip(".")
        raise DataError(f"{path}: cannot be read as Parquet, it is damaged or cut off: {said}.") from error
    for number, row in enumerate(columns, start=1):
        yield Row(place=f"{path}:{number}", columns=row)


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
