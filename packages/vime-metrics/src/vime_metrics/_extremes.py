"""Metrics that pick a value: the largest, the smallest, the last.

A maximum of maxima is the maximum; it is never averaged over ranks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self, final

from vime_metrics._metric import Metric
from vime_metrics._numbers import Values, as_array, as_count, as_float, split_finite


@final
@dataclass(frozen=True, slots=True)
class Max(Metric):
    """The largest value; NaN where nothing was added.

    >>> (Max(10) + Max.of([2, 3])).value
    10.0
    """

    extreme: float = -math.inf
    nonfinite: int = 0

    def __post_init__(self) -> None:
        _settle_extreme(self, as_float(self.extreme, "Max"), empty=-math.inf)

    @classmethod
    def of(cls, values: Values) -> Self:
        """The largest of `values`, any shape."""
        finite, nonfinite = split_finite(as_array(values, "Max values"))
        return cls(float(finite.max(initial=-math.inf)), nonfinite)

    def __add__(self, other: Self) -> Self:
        self._require_same_kind(other)
        return type(self)(max(self.extreme, other.extreme), self.nonfinite + other.nonfinite)

    @property
    def finite_value(self) -> float:
        """The maximum."""
        return math.nan if self.extreme == -math.inf else self.extreme


@final
@dataclass(frozen=True, slots=True)
class Min(Metric):
    """The smallest value; NaN where nothing was added.

    >>> (Min(10) + Min.of([2, 3])).value
    2.0
    """

    extreme: float = math.inf
    nonfinite: int = 0

    def __post_init__(self) -> None:
        _settle_extreme(self, as_float(self.extreme, "Min"), empty=math.inf)

    @classmethod
    def of(cls, values: Values) -> Self:
        """The smallest of `values`, any shape."""
        finite, nonfinite = split_finite(as_array(values, "Min values"))
        return cls(float(finite.min(initial=math.inf)), nonfinite)

    def __add__(self, other: Self) -> Self:
        self._require_same_kind(other)
        return type(self)(min(self.extreme, other.extreme), self.nonfinite + other.nonfinite)

    @property
    def finite_value(self) -> float:
        """The minimum."""
        return math.nan if self.extreme == math.inf else self.extreme


@final
@dataclass(frozen=True, slots=True)
class Last(Metric):
    """The value at the highest `step`; NaN where nothing was added.

    Where several values share that step it is their mean: within a step ranks usually agree (learning rate, epoch),
    and where they do not, no other answer is the same in every order of addition.

    >>> (Last(3e-4, step=7) + Last(1e-4, step=8)).value
    0.0001
    """

    total: float = 0.0
    step: int = 0
    holders: int = 1
    nonfinite: int = 0

    def __post_init__(self) -> None:
        total = as_float(self.total, "Last")
        if not math.isfinite(total):
            total = 0.0
            object.__setattr__(self, "holders", 0)
            object.__setattr__(self, "nonfinite", self.nonfinite + 1)
        object.__setattr__(self, "total", total)
        object.__setattr__(self, "step", as_count(self.step, "Last.step") if self.holders else 0)

    @classmethod
    def of(cls, values: Values, step: int = 0) -> Self:
        """The final one of `values`, taken at `step`; nothing if there are none."""
        array = as_array(values, "Last values")
        return cls(float(array[-1]), step) if array.size else cls(holders=0)

    def __add__(self, other: Self) -> Self:
        self._require_same_kind(other)
        nonfinite = self.nonfinite + other.nonfinite
        if self.newest != other.newest:
            newer = self if self.newest > other.newest else other
            return type(self)(newer.total, newer.step, newer.holders, nonfinite)
        return type(self)(self.total + other.total, self.step, self.holders + other.holders, nonfinite)

    @property
    def empty(self) -> Self:
        """No values."""
        return type(self)(holders=0)

    @property
    def finite_value(self) -> float:
        """total / holders at the highest step."""
        return self.total / self.holders if self.holders else math.nan

    @property
    def newest(self) -> int:
        """The step, -1 where nothing was added."""
        return self.step if self.holders else -1


def _settle_extreme(metric: Max | Min, extreme: float, *, empty: float) -> None:
    """Store a converted extreme; NaN and the infinity that is not the empty value are counted instead."""
    if not math.isfinite(extreme) and extreme != empty:
        extreme = empty
        object.__setattr__(metric, "nonfinite", metric.nonfinite + 1)
    object.__setattr__(metric, "extreme", extreme)
