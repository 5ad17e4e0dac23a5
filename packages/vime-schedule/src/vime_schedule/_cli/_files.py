"""Read and write files with errors that say which file and what to do; `-` is stdin."""

from __future__ import annotations

import sys
from pathlib import Path

from vime_schedule._errors import ScheduleError
from vime_schedule._schedule import Schedule


def source_name(path: str) -> str:
    """Name a source as error messages do."""
    return "stdin" if path == "-" else path


def read_text(path: str) -> str:
    """Return the whole text of a file or of stdin."""
    try:
        raw = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise ScheduleError(f"cannot read {path}: {error.strerror}: check the path.") from error
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ScheduleError(
            f"{source_name(path)} is not UTF-8 text (byte {error.start}): give JSONL, JSON, CSV or numbers."
        ) from error


def write_text(path: str, text: str) -> None:
    """Write a file and say so on stderr, since stdout carries figures."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ScheduleError(f"cannot write {path}: {error.strerror}: check the path.") from error
    print(f"wrote {path}", file=sys.stderr)


def read_schedule(path: str) -> Schedule:
    """Read a plan that `plan -o` or `plan --json` wrote; the error of a damaged one names the file."""
    try:
        return Schedule.from_json(read_text(path))
    except ScheduleError as error:
        raise ScheduleError(f"{source_name(path)}: {error}") from error


def check_index(value: int, count: int, option: str, noun: str) -> None:
    """Refuse the number of a step or rank that the plan does not have."""
    if not 0 <= value < count:
        raise ScheduleError(f"{option} is {value} but the plan has {count} {noun}(s): give 0 to {count - 1}.")
