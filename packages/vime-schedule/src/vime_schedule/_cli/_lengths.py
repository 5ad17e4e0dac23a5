"""Read sample lengths and rollout ids: JSONL, JSON, CSV with a header, or plain numbers, from a file or stdin.

Laws
- A length that is not a whole number of 1 to 2**53 is an error that names the line and the field.
- Either every sample has a rollout id or none has.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from vime_schedule._cli._files import read_text, source_name
from vime_schedule._cli._numbers import whole_number
from vime_schedule._cli._records import Record, parse_records
from vime_schedule._errors import ScheduleError

LENGTH_FIELDS = ("total_length", "total_lengths", "length", "total_tokens", "num_tokens", "tokens", "input_ids")
LENGTH_PAIRS = (("prompt_length", "response_length"), ("prompt_tokens", "response_tokens"))
ROLLOUT_FIELDS = ("rollout_id", "rollout_ids")
LONGEST = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """The samples of one batch, in file order."""

    total_lengths: list[int]
    rollout_ids: list[Hashable] | None
    signatures: list[Hashable] | None


def read_lengths(
    path: str, *, length_field: str | None = None, rollout_field: str | None = None, signature_field: str | None = None
) -> Lengths:
    """Read a file, or stdin for `-`.

    Args:
        path: what to read.
        length_field: field with the tokens of a sample; `a+b` adds two. None looks for the usual names.
        rollout_field: field with the rollout id. None looks for `rollout_id`.
        signature_field: field with what micro-batches of the same index share on every rank, such as a modality.

    Raises:
        ScheduleError: naming file, line and field.
    """
    total_lengths: list[int] = []
    rollout_ids: list[Hashable] = []
    signatures: list[Hashable] = []
    fields: tuple[str, ...] = ()
    id_field: str | None = None
    for record in parse_records(read_text(path), source_name(path)):
        if not total_lengths:
            fields = _length_fields(record, length_field)
            id_field = rollout_field or next((name for name in ROLLOUT_FIELDS if name in record.fields), None)
        length = sum(_tokens(record, field) for field in fields)
        if not 1 <= length <= LONGEST:
            named = "+".join(fields)
            raise ScheduleError(f"{record.where}: `{named}` is {length} tokens: give at least 1 and at most 2**53.")
        total_lengths.append(length)
        if id_field is not None:
            rollout_ids.append(_name(record, id_field))
        if signature_field is not None:
            signatures.append(_name(record, signature_field))
    if not total_lengths:
        raise ScheduleError(f"{source_name(path)} holds no lengths: give one per line, or JSONL or CSV records.")
    return Lengths(
        total_lengths=total_lengths,
        rollout_ids=None if id_field is None else rollout_ids,
        signatures=None if signature_field is None else signatures,
    )


def _length_fields(record: Record, wanted: str | None) -> tuple[str, ...]:
    """Return the fields whose numbers add up to a length, as asked for or by the usual names."""
    if wanted is not None:
        return tuple(wanted.split("+"))
    for name in LENGTH_FIELDS:
        if name in record.fields:
            return (name,)
    for pair in LENGTH_PAIRS:
        if all(name in record.fields for name in pair):
            return pair
    raise ScheduleError(
        f"{record.where} has the fields {', '.join(record.fields)} and none is a known length: "
        "name it with --length-field NAME, or --length-field PROMPT+RESPONSE."
    )


def _tokens(record: Record, field: str) -> int:
    """Return a field as a number of tokens; a list counts its entries."""
    value = record.get(field)
    if isinstance(value, list):
        value = len(value)
    if isinstance(value, str):
        number = whole_number(value)
        value = value if number is None else number
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ScheduleError(f"{record.where}: `{field}` is {value!r}: give a whole number of tokens.")
    return value


def _name(record: Record, field: str) -> Hashable:
    """Return an id or a signature, a number or a text."""
    value = record.get(field)
    if value == "" or not isinstance(value, str | int):
        raise ScheduleError(f"{record.where}: `{field}` is {value!r}: give every sample a number or a text.")
    return value
