"""From the step of one rank to its schema.

Laws: the digest depends on the keys, kinds, settings and options alone, not on the order of the dictionary;
describing a step whose keys and kinds were seen before costs no serialisation and no hash.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from vime_metrics._errors import MetricError
from vime_metrics._extremes import Last, Max, Min
from vime_metrics._histogram import Histogram, TextCounts
from vime_metrics._metric import Metric
from vime_metrics._moments import Std
from vime_metrics._quantiles import Quantiles
from vime_metrics._reduction._schema import NONFINITE_SUFFIX, Entry, LocalSchema, Options, Schema, Settings
from vime_metrics._sums import Count, Mean, Rate, Sum

_KINDS: Final[tuple[type[Metric], ...]] = (
    Count,
    Histogram,
    Last,
    Max,
    Mean,
    Min,
    Quantiles,
    Rate,
    Std,
    Sum,
    TextCounts,
)
_WITH_SETTINGS: Final = (Std, Quantiles, Histogram, TextCounts)
REMEMBERED: Final = 32
"""How many shapes of step, and schemas of one shape, are kept."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """Steps that have the same keys and kinds in the same order; compared by identity."""

    keys: tuple[str, ...]
    kinds: tuple[type, ...]
    options: Options
    configured: tuple[int, ...] = field(init=False)
    schemas: dict[tuple[Settings, ...], LocalSchema] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        configured = tuple(at for at, kind in enumerate(self.kinds) if kind in _WITH_SETTINGS)
        object.__setattr__(self, "configured", configured)


@dataclass(frozen=True, slots=True)
class Local:
    """One rank's part of a reduction: its metrics in the order of `shape`, and its schema."""

    values: tuple[Metric, ...]
    shape: Shape
    schema: LocalSchema


class Describer:
    """Describes steps, remembering the latest shapes of step."""

    def __init__(self) -> None:
        self._shapes: deque[Shape] = deque(maxlen=REMEMBERED)

    def describe(self, step: Mapping[str, Metric], options: Options) -> Local:
        """`step` with its schema; `MetricError` names a key that has no metric."""
        shape, values = self._shape(step, options), tuple(step.values())
        settings = tuple([settings_of(values[at]) for at in shape.configured])
        schema = shape.schemas.get(settings)
        if schema is None:
            schema = LocalSchema.of(_schema(step, options))
            if len(shape.schemas) >= REMEMBERED:
                shape.schemas.clear()
            shape.schemas[settings] = schema
        return Local(values, shape, schema)

    def failure(self, error: MetricError, options: Options) -> Local:
        """An empty step whose schema tells the other ranks what is wrong with this one."""
        failed = Schema(entries={}, call=options.call(), error=str(error))
        return Local((), Shape((), (), options), LocalSchema.of(failed))

    def _shape(self, step: Mapping[str, Metric], options: Options) -> Shape:
        # Comparing with the few shapes in use takes half the time of hashing thousands of keys.
        keys, kinds = tuple(step), tuple(map(type, step.values()))
        for shape in self._shapes:
            if shape.keys == keys and shape.kinds == kinds and shape.options == options:
                return shape
        shape = Shape(keys, kinds, options)
        self._shapes.appendleft(shape)
        return shape


def settings_of(metric: Metric) -> Settings:
    """What two metrics of one key must share to be added; for texts, what is united instead."""
    match metric:
        case Std():
            return ("unbiased" if metric.unbiased else "biased",)
        case Quantiles():
            return metric.also
        case Histogram():
            return metric.edges
        case TextCounts():
            return tuple(dict(metric.counts))
        case _:
            return ()


def _schema(step: Mapping[str, Metric], options: Options) -> Schema:
    _refuse_names(step)
    entries = {
        key: Entry(kind=_kind(key, step[key]), settings=settings_of(step[key]), copies=options.copies(key))
        for key in sorted(step)
    }
    return Schema(entries=entries, call=options.call())


def _refuse_names(step: Mapping[str, Metric]) -> None:
    for key in step:
        if not isinstance(key, str):
            raise MetricError(f"metric {key!r} must be named by a text, not by a {type(key).__name__}.")
        owner = step.get(key.removesuffix(NONFINITE_SUFFIX))
        if key.endswith(NONFINITE_SUFFIX) and not (isinstance(owner, Metric) and owner.nonfinite):
            raise MetricError(
                f"metric {key!r} ends in {NONFINITE_SUFFIX!r}, which is kept for counts of NaN: rename it."
            )


def _kind(key: str, metric: object) -> str:
    if type(metric) not in _KINDS:
        known = ", ".join(kind.__name__ for kind in _KINDS)
        raise MetricError(
            f"metric {key!r} is a {type(metric).__name__} ({metric!r:.60}): say how it adds, with one of {known}."
        )
    return type(metric).__name__
