"""Turn a text into records: JSONL objects or numbers, one JSON document, CSV with a header, or plain numbers."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vime_schedule._errors import ScheduleError

NUMBER_FIELD = "length"


@dataclass(frozen=True, slots=True)
class Record:
    """One sample of a file and where it stands, for error messages."""

    source: str
    place: str
    fields: Mapping[str, Any]

    @property
    def where(self) -> str:
        """`lengths.csv:17` or `lengths.json, entry 3`."""
        return self.source + self.place

    def get(self, name: str) -> Any:
        """Return a field, or say which record lacks it."""
        if name not in self.fields:
            raise ScheduleError(f"{self.where} has no field `{name}`: it has {', '.join(self.fields) or 'none'}.")
        return self.fields[name]


def parse_records(text: str, source: str) -> Iterator[Record]:
    """Recognise the format by its first characters and parse record by record.

    >>> [record.fields["length"] for record in parse_records("3 1 2", "stdin")]
    ['3', '1', '2']
    """
    start = text.lstrip()[:1]
    if start == "[":
        return _json_array(text, source)
    if start == "{":
        return _json_lines(text, source)
    first = text.replace(",", " ").split(maxsplit=1)[:1]
    return _csv(text, source) if first and not _is_number(first[0]) else _numbers(text, source)


def _json_array(text: str, source: str) -> Iterator[Record]:
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ScheduleError(f"{source}: not valid JSON ({error}): correct the file.") from error
    for position, entry in enumerate(entries):
        fields = entry if isinstance(entry, dict) else {NUMBER_FIELD: entry}
        yield Record(source, f", entry {position}", fields)


def _json_lines(text: str, source: str) -> Iterator[Record]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ScheduleError(f"{source}:{number}: not valid JSON ({error}): correct the line.") from error
        if not isinstance(entry, dict):
            raise ScheduleError(f"{source}:{number}: {line.strip()[:40]!r} is not an object as on the lines before.")
        if isinstance(entry.get("total_lengths"), list):
            yield from _columns(entry, source)
        else:
            yield Record(source, f":{number}", entry)


def _columns(entry: dict[str, Any], source: str) -> Iterator[Record]:
    """Spread one object of equally long lists, as trainers dump a batch, into a record per sample."""
    columns = {name: entry[name] for name in ("total_lengths", "rollout_ids") if entry.get(name) is not None}
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) != 1:
        raise ScheduleError(f"{source}: the lists have different sizes {sizes}: give one entry per sample in each.")
    for position, values in enumerate(zip(*columns.values(), strict=True)):
        yield Record(source, f", sample {position}", dict(zip(columns, values, strict=True)))


def _csv(text: str, source: str) -> Iterator[Record]:
    csv.field_size_limit(sys.maxsize)  # a column of prompts is wider than the default of 128 KiB
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] = []
    try:
        for row in rows:
            cells = [cell.strip() for cell in row]
            if not header:
                header = cells if any(cells) else []
            elif any(cells):
                yield _csv_record(header, cells, source, rows.line_num)
    except csv.Error as error:
        raise ScheduleError(f"{source}:{rows.line_num}: not valid CSV ({error}): correct the line.") from error


def _csv_record(header: list[str], cells: list[str], source: str, number: int) -> Record:
    if len(cells) != len(header):
        raise ScheduleError(f"{source}:{number}: {len(cells)} cells under a header of {len(header)}: correct the line.")
    return Record(source, f":{number}", dict(zip(header, cells, strict=True)))


def _numbers(text: str, source: str) -> Iterator[Record]:
    for number, line in enumerate(text.split("\n"), start=1):
        for word in line.replace(",", " ").split():
            yield Record(source, f":{number}", {NUMBER_FIELD: word})


def _is_number(text: str) -> bool:
    """Whether a line such as `1e3` or `nan` is meant as a number though it has letters."""
    try:
        float(text)
    except ValueError:
        return False
    return True
