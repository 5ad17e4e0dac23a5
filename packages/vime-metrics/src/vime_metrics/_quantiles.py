"""Quantiles that merge.

Up to `EXACT_SIZE` values are kept as they are and quantiles are exact (linear interpolation, as numpy's default).
Beyond that the values become a `Sketch`, whose estimates are within `RELATIVE_ERROR` = 1/256 of the order statistics
that the exact answer interpolates. Which of the two it is depends on the number of values alone, so the
state, and with it every quantile, is a function of the pooled data: merging is associative and commutative bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self, final

import numpy as np

from vime_metrics._errors import MetricError
from vime_metrics._metric import Metric
from vime_metrics._numbers import Array, Values, as_array, split_finite
from vime_metrics._sketch import Sketch

EXACT_SIZE = 2048
"""How many values are kept exactly."""

ALWAYS_REPORTED = (0.5, 0.99)


def _no_values() -> Array:
    return np.empty(0)


@final
@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Quantiles(Metric):
    """The distribution of all values; `value` is the median, NaN where nothing was added.

    Build it with `Quantiles.of`. A reduced one reports `name/p50`, `name/p99` and each quantile of `also`.

    >>> lengths = Quantiles.of([10, 20, 30, 40], also=[0.9]) + Quantiles.of([50], also=[0.9])
    >>> lengths.quantile(0.25), lengths.value
    (20.0, 30.0)
    >>> lengths.report("length")
    {'length/p50': 30.0, 'length/p90': 46.0, 'length/p99': 49.6}
    """

    exact: Array = field(default_factory=_no_values)
    sketch: Sketch | None = None
    lowest: float = math.inf
    highest: float = -math.inf
    also: tuple[float, ...] = ()
    nonfinite: int = 0

    @classmethod
    def of(cls, values: Values, also: Sequence[float] = ()) -> Self:
        """Quantiles of `values`, any shape; `also` names the quantiles to report beyond the median and p99."""
        finite, nonfinite = split_finite(as_array(values, "Quantiles values"))
        asked = tuple(sorted({_require_share(float(q)) for q in also}))
        return cls._from_finite(finite, also=asked, nonfinite=nonfinite)

    @classmethod
    def _from_finite(cls, values: Array, *, also: tuple[float, ...], nonfinite: int) -> Self:
        if not values.size:
            return cls(also=also, nonfinite=nonfinite)
        small = values.size <= EXACT_SIZE
        return cls(
            exact=np.sort(values + 0.0) if small else _no_values(),
            sketch=None if small else Sketch.of(values),
            lowest=float(values.min()) + 0.0,
            highest=float(values.max()) + 0.0,
            also=also,
            nonfinite=nonfinite,
        )

    def __add__(self, other: Self) -> Self:
        self._require_same_kind(other)
        if self.also != other.also:
            raise MetricError(
                f"cannot add Quantiles that report {other.also} to Quantiles that report {self.also}: "
                f"give every rank the same `also`."
            )
        nonfinite = self.nonfinite + other.nonfinite
        if self.sketch is None and other.sketch is None:
            pooled = np.concatenate([self.exact, other.exact])
            return self._from_finite(pooled, also=self.also, nonfinite=nonfinite)
        return type(self)(
            sketch=self.as_sketch() + other.as_sketch(),
            lowest=min(self.lowest, other.lowest),
            highest=max(self.highest, other.highest),
            also=self.also,
            nonfinite=nonfinite,
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Quantiles)
            and np.array_equal(self.exact, other.exact)
            and self.sketch == other.sketch
            and (self.lowest, self.highest, self.also, self.nonfinite)
            == (other.lowest, other.highest, other.also, other.nonfinite)
        )

    __hash__ = None  # type: ignore[assignment]  # arrays inside

    @property
    def count(self) -> int:
        """How many finite values were added."""
        return self.exact.size if self.sketch is None else self.sketch.size

    @property
    def empty(self) -> Self:
        """No values, the same `also`."""
        return type(self)(also=self.also)

    @property
    def finite_value(self) -> float:
        """The median."""
        return self._quantile(0.5)

    def quantile(self, q: float) -> float:
        """The value that a share `q` of the data, 0 to 1, does not exceed; NaN where nothing was added."""
        return math.nan if self.nonfinite else self._quantile(_require_share(q))

    def report(self, name: str) -> dict[str, float]:
        """`name/p50`, `name/p99` and what else was asked for, in ascending order."""
        return {key: self.quantile(q) for q, key in zip(self.reported, self.report_names(name), strict=True)}

    @property
    def reported(self) -> tuple[float, ...]:
        """The quantiles that `report` gives."""
        return tuple(sorted({*ALWAYS_REPORTED, *self.also}))

    def report_names(self, name: str) -> tuple[str, ...]:
        """The keys that `report` gives: 0.999 is `name/p99.9`."""
        return tuple(f"{name}/p{100 * q:.6g}" for q in self.reported)

    def as_sketch(self) -> Sketch:
        """The data as a sketch, also while it is held exactly."""
        return Sketch.of(self.exact) if self.sketch is None else self.sketch

    def _quantile(self, q: float) -> float:
        if not self.count:
            return math.nan
        position = q * (self.count - 1)
        below, above = math.floor(position), math.ceil(position)
        at = np.array([below, above])
        low, high = self.exact[at] if self.sketch is None else self.sketch.at(at).clip(self.lowest, self.highest)
        return float(low + (high - low) * (position - below))


def _require_share(q: float) -> float:
    if not 0 <= q <= 1:
        raise MetricError(f"a quantile is a share between 0 and 1, given {q}: write 0.99 for the 99th percentile.")
    return q
