"""What one rank brings to a reduction: its keys, their kinds and settings; no numbers.

Laws: the digest depends on the keys, kinds, settings and options alone, not on the order of the dictionary;
describing a step whose keys and kinds were seen before costs no serialisation and no hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from vime_metrics._errors import MetricError
from vime_metrics._extremes import Last, Max, Min
from vime_metrics._histogram import Histogram, TextCounts
from vime_metrics._metric import Metric
from vime_metrics._moments import Std
from vime_metrics._quantiles import Quantiles
from vime_metrics._sums import Count, Mean, Rate, Sum

Replicas: TypeAlias = int | Mapping[str, int]
NonFinite: TypeAlias = Literal["keep", "drop", "error"]
Settings: TypeAlias = tuple[float | str, ...]

KINDS: Final[dict[str, type[Metric]]] = {
    kind.__name__: kind for kind in (Count, Histogram, Last, Max, Mean, Min, Quantiles, Rate, Std, Sum, TextCounts)
}
NONFINITE_SUFFIX = "/nonfinite"


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


def settings_of(metric: Metric) -> Settings:
    """What two metrics of one key must share to be added; for texts, what is united instead."""
    match metric:
        case Std():
            return (float(metric.unbiased),)
        case Quantiles():
            return metric.also
        case Histogram():
            return metric.edges
        case TextCounts():
            return tuple(dict(metric.counts))
        case _:
            return ()


@dataclass(slots=True)
class _Shape:
    """Steps with the same keys and kinds in the same order: which of their keys have settings, and schemas by those."""

    configured: tuple[str, ...]
    schemas: dict[tuple[Settings, ...], LocalSchema] = field(default_factory=dict)

    @classmethod
    def of(cls, step: Mapping[str, Metric]) -> _Shape:
        return cls(tuple(key for key, metric in step.items() if isinstance(metric, _WITH_SETTINGS)))


class Describer:
    """Describes steps, remembering the latest shapes of step."""

    _REMEMBERED: Final = 32

    def __init__(self) -> None:
        self._shapes: dict[object, _Shape] = {}

    def describe(self, step: Mapping[str, Metric], options: Options) -> LocalSchema:
        """The schema of `step`."""
        shape = self._shape(step, options)
        settings = tuple([settings_of(step[key]) for key in shape.configured])
        found = shape.schemas.get(settings)
        if found is None:
            found = LocalSchema.of(_schema(step, options))
            if len(shape.schemas) >= self._REMEMBERED:
                shape.schemas.clear()
            shape.schemas[settings] = found
        return found

    def _shape(self, step: Mapping[str, Metric], options: Options) -> _Shape:
        outline = (tuple(step), tuple(map(type, step.values())), options)
        shape = self._shapes.get(outline)
        if shape is None:
            shape = _Shape.of(step)
            if len(self._shapes) >= self._REMEMBERED:
                self._shapes.clear()
            self._shapes[outline] = shape
        return shape


_WITH_SETTINGS: Final = (Std, Quantiles, Histogram, TextCounts)


def _schema(step: Mapping[str, Metric], options: Options) -> Schema:
    _refuse_reserved(step)
    entries = {
        key: Entry(kind=_kind(key, step[key]), settings=settings_of(step[key]), copies=options.copies(key))
        for key in sorted(step)
    }
    return Schema(entries=entries, call=options.call())


def _refuse_reserved(step: Mapping[str, Metric]) -> None:
    for key in step:
        owner = step.get(key.removesuffix(NONFINITE_SUFFIX))
        if key.endswith(NONFINITE_SUFFIX) and not (isinstance(owner, Metric) and owner.nonfinite):
            raise MetricError(
                f"metric {key!r} ends in {NONFINITE_SUFFIX!r}, which is kept for counts of NaN: rename it."
            )


def _kind(key: str, metric: object) -> str:
    name = type(metric).__name__
    if KINDS.get(name) is not type(metric):
        raise MetricError(
            f"metric {key!r} is a {name} ({metric!r:.60}): say how it adds, with one of {', '.join(KINDS)}."
        )
    return name
