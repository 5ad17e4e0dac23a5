"""One schema from those of all ranks, or an error that every rank raises alike.

Laws: the union does not depend on which rank is which; an error names the rank and the key, and reads alike everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from vime_metrics._errors import SchemaError
from vime_metrics._reduction._schema import NONFINITE_SUFFIX, Entry, Schema, Settings


def unite(schemas: Sequence[Schema], *, strict: bool) -> dict[str, Entry]:
    """The entries of all ranks, keys ascending; `schemas[r]` is that of rank r of the group."""
    _refuse_failed(schemas)
    _refuse_other_calls(schemas)
    union: dict[str, Entry] = {}
    holders: dict[str, list[int]] = {}
    for rank, schema in enumerate(schemas):
        for key, entry in schema.entries.items():
            union[key] = _agree(key, union.get(key, entry), holders.get(key, [rank])[0], entry, rank)
            holders.setdefault(key, []).append(rank)
    _refuse_partial_copies(union, holders)
    if strict:
        _refuse_missing(holders, len(schemas))
    return dict(sorted(union.items()))


def refuse_equal_names(names: Sequence[str]) -> None:
    """Two metrics must not report under one name."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise SchemaError(f"two metrics report as {name!r}: rename the one that does not expand to several names.")
        seen.add(name)


def _agree(key: str, known: Entry, known_rank: int, entry: Entry, rank: int) -> Entry:
    if known == entry:
        return known
    same = (known.kind, known.copies) == (entry.kind, entry.copies)
    if same and entry.kind == "TextCounts":
        texts: Settings = tuple(sorted({*map(str, known.settings), *map(str, entry.settings)}))
        return Entry(kind=entry.kind, settings=texts, copies=entry.copies)
    raise SchemaError(
        f"metric {key!r} is {_describe(known)} on rank {known_rank} but {_describe(entry)} on rank {rank}: "
        f"log it the same way on every rank."
    )


def _describe(entry: Entry) -> str:
    settings = f" with {entry.settings}" if entry.settings else ""
    copies = f", replicas={entry.copies}" if entry.copies > 1 else ""
    return f"{entry.kind}{settings}{copies}"


def _refuse_failed(schemas: Sequence[Schema]) -> None:
    failed = [f"rank {rank}: {schema.error}" for rank, schema in enumerate(schemas) if schema.error is not None]
    if failed:
        raise SchemaError("; ".join(failed))


def _refuse_other_calls(schemas: Sequence[Schema]) -> None:
    for rank, schema in enumerate(schemas):
        if schema.call != schemas[0].call:
            raise SchemaError(
                f"rank 0 called {schemas[0].call} but rank {rank} called {schema.call}: every rank of a group must "
                f"make the same call, rank {rank} with {_some(schema.entries)}."
            )


def _refuse_partial_copies(union: dict[str, Entry], holders: dict[str, list[int]]) -> None:
    for key, ranks in holders.items():
        if len(ranks) % union[key].copies and not key.endswith(NONFINITE_SUFFIX):
            raise SchemaError(
                f"metric {key!r} is declared with replicas={union[key].copies} but held by {len(ranks)} ranks "
                f"({_some(ranks)}): all copies of a value must take part, or none."
            )


def _refuse_missing(holders: dict[str, list[int]], ranks: int) -> None:
    for key, there in sorted(holders.items()):
        missing = sorted(set(range(ranks)) - set(there))
        if missing and not key.endswith(NONFINITE_SUFFIX):
            raise SchemaError(
                f"metric {key!r} is missing on rank {_some(missing)} while rank {_some(there)} has it: "
                f"log it everywhere, or reduce with strict=False for the union of keys."
            )


def _some(things: Sequence[int] | dict[str, Entry]) -> str:
    shown = ", ".join(map(str, list(things)[:3]))
    return f"{shown} and {len(things) - 3} more" if len(things) > 3 else shown or "no metrics"
