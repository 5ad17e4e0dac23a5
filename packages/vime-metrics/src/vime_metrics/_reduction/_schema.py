"""What ranks have to agree on: keys, kinds and settings; no numbers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from vime_metrics._errors import MetricError

Replicas: TypeAlias = int | Mapping[str, int]
NonFinite: TypeAlias = Literal["keep", "drop", "error"]
Settings: TypeAlias = tuple[float | str, ...]

NONFINITE_SUFFIX: Final = "/nonfinite"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a reduction was called; every rank must call it alike."""

    group_dst: int | None
    strict: bool
    nonfinite: NonFinite
    replicas: int | tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, *, group_dst: int | None, strict: bool, nonfinite: NonFinite, replicas: Replicas) -> Options:
        """Checked options."""
        if nonfinite not in ("keep", "drop", "error"):
            raise MetricError(f"nonfinite must be 'keep', 'drop' or 'error', given {nonfinite!r}.")
        copies = replicas if isinstance(replicas, int) else tuple(sorted(replicas.items()))
        for number in (copies,) if isinstance(copies, int) else dict(copies).values():
            if number < 1:
                raise MetricError(f"replicas counts the copies of a value in the group, at least 1; given {replicas}.")
        return cls(group_dst=group_dst, strict=strict, nonfinite=nonfinite, replicas=copies)

    def copies(self, key: str) -> int:
        """How many ranks of the group hold a copy of every value of `key`."""
        if isinstance(self.replicas, int):
            return self.replicas
        return dict(self.replicas).get(key.removesuffix(NONFINITE_SUFFIX), 1)

    def call(self) -> str:
        """The call as a user wrote it, for comparison and errors."""
        name = "all_reduce" if self.group_dst is None else f"reduce(group_dst={self.group_dst})"
        return f"{name}, strict={self.strict}, nonfinite={self.nonfinite!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One key of a schema: its kind, the settings that every rank must share, and the copies declared for it."""

    kind: str
    settings: Settings = ()
    copies: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The keys of one rank in ascending order, how the reduction was called, or the error that stopped this rank."""

    entries: dict[str, Entry]
    call: str
    error: str | None = None

    def to_bytes(self) -> bytes:
        """Canonical JSON."""
        rows = [[key, entry.kind, entry.settings, entry.copies] for key, entry in self.entries.items()]
        return json.dumps([self.call, self.error, rows], separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Schema:
        """Inverse of `to_bytes`."""
        call, error, rows = json.loads(data)
        entries = {key: Entry(kind=kind, settings=tuple(rest), copies=copies) for key, kind, rest, copies in rows}
        return cls(entries=entries, call=call, error=error)


@dataclass(frozen=True, slots=True)
class LocalSchema:
    """A schema ready to be sent."""

    schema: Schema
    data: bytes
    digest: bytes

    @classmethod
    def of(cls, schema: Schema) -> LocalSchema:
        """Serialise and hash once."""
        data = schema.to_bytes()
        return cls(schema, data, hashlib.sha256(data).digest()[:16])
