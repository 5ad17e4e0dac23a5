"""Metrics that are sums: of values, of events, of a numerator and a denominator.

Totals are fp64; counts are Python integers, exact on the wire up to 2**53.
A ratio is formed once, from the pooled sums, never by averaging ratios.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self, final

import numpy as np

from vime_metrics._errors import MetricError
from vime_metrics._metric import Metric
from vime_metrics._numbers import MAX_EXACT_INTEGER, Values, as_array, as_count, as_float, split_finite


@final
@dataclass(frozen=True, slots=True)
class Sum(Metric):
    """The sum of all values; 0.0 where nothing was added.

    >>> (Sum(2) + Sum.of([3, 4.5])).value
    9.5
    """

    total: float = 0.0
    nonfinite: int = 0

    def __post_init__(self) -> None:
        _settle(self, total=as_float(self.total, "Sum.total"))

    @classmethod
    def of(cls, values: Values) -> Self:
        """Sum of `values`, any shape."""
        finite, nonfinite = split_finite(as_array(values, "Sum values"))
        return cls(float(finite.sum()), nonfinite)

    def __add__(self, other: Self) -> Self:
        self._require_same_kind(other)
        return type(self)(self.total + other.total, self.nonfinite + other.nonfinite)

    @property
    def finite_value(self) -> float:
        """The total."""
        return self.total


@final
@dataclass(frozen=True, slots=True)
class Count(Metric):
    """How many; 0.0 where nothing was counted. Exact to 2**53.

    >>> (Count(3) + Count.of([0.1, 0.2])).value
    5.0
    """

    number: int = 0
    nonfinite: int = 0

    def __post_init__(self) -> None:
        if type(self.number) is not int or not 0 <= self.number <= MAX_EXACT_INTEGER:
            object.__setattr__(self, "number", as_count(self.number, "Count.number"))

    @classmethod
    def of(cls, values: Values) -> Self:
        """The number of `values`, whatever they are."""
        finite, nonfinite = split_finite(as_array(values, "Count values"))
        return cls(finite.size, nonfinite)

    def __add__(self, other: Self) -> Self:
        self._require_same_kind(other)
        return type(self)(self.number + other.number, self.nonfinite + other.nonfinite)

    @property
    def finite_value(self) -> float:
        """The count as a float."""
        return float(self.number)


@final
@dataclass(frozen=True, slots=True)
class Mean(Metric):
    """Weighted mean, kept as `total` = sum of weight * value and `weight` = sum of weights; NaN at weight 0.

    The weight is what the mean is over: tokens, samples, rollouts. Means of unequal sizes pool correctly.

    >>> (Mean(3, 12) + Mean(3, 4)).value
    0.375
    >>> Mean.of([8, 6], weights=[1, 3]).value
    6.5
    """

    total: float = 0.0
    weight: float = 0.0
    nonfinite: int = 0

    def __post_init__(self) -> None:
        weight = as_float(self.weight, "Mean.weight")
        _require_weight("Mean.weight", weight)
        total = as_float(self.total, "Mean.total")
        if weight == 0 and math.isfinite(total) and total != 0:
            raise MetricError(f"Mean.total is {total} but its weight is 0: give the weight the total was summed over.")
        _settle(self, total=total, weight=weight)

    @classmethod
    def of(cls, values: Values, weights: Values | None = None) -> Self:
        """Mean of `values`, each with weight 1 or its own of `weights`; a value of weight 0 is not part of the data."""
        array = as_array(values, "Mean values")
        if weights is None:
            finite, nonfinite = split_finite(array)
            return cls(float(finite.sum()), float(finite.size), nonfinite)
        weight = as_array(weights, "Mean weights")
        if weight.size != array.size:
            raise MetricError(f"Mean has {array.size} values but {weight.size} weights: give one weight per value.")
        _require_weights(weight)
        array, weight = array[weight > 0], weight[weight > 0]
        finite_at = np.isfinite(array)
        array, weight = array[finite_at], weight[finite_at]
        return cls(float(array @ weight), float(weight.sum()), finite_at.size - array.size)

    def __add__(self, other: Self) -> Self:
        self._require_same_kind(other)
        nonfinite = self.nonfinite + other.nonfinite
        return type(self)(self.total + other.total, self.weight + other.weight, nonfinite)

    @property
    def finite_value(self) -> float:
        """total / weight."""
        return self.total / self.weight if self.weight else math.nan


@final
@dataclass(frozen=True, slots=True)
class Rate(Metric):
    """Amount per second of one rank, e.g. tokens per second per GPU; NaN at 0 seconds.

    Both parts add. Ranks that work side by side each bring their own seconds, so the pooled value is
    the throughput of one rank, whatever the number of ranks; the total is that times the ranks.

    >>> (Rate(1000, 2.0) + Rate(500, 1.0)).value
    500.0
    """

    amount: float = 0.0
    seconds: float = 0.0
    nonfinite: int = 0

    def __post_init__(self) -> None:
        seconds = as_float(self.seconds, "Rate.seconds")
        _require_weight("Rate.seconds", seconds)
        _settle(self, amount=as_float(self.amount, "Rate.amount"), seconds=seconds)

    @classmethod
    def of(cls, amounts: Values, seconds: Values) -> Self:
        """All `amounts` over all `seconds`."""
        return cls(float(as_array(amounts, "Rate amounts").sum()), float(as_array(seconds, "Rate seconds").sum()))

    def __add__(self, other: Self) -> Self:
        self._require_same_kind(other)
        nonfinite = self.nonfinite + other.nonfinite
        return type(self)(self.amount + other.amount, self.seconds + other.seconds, nonfinite)

    @property
    def finite_value(self) -> float:
        """amount / seconds."""
        return self.amount / self.seconds if self.seconds else math.nan


def _settle(metric: Sum | Mean | Rate, **numbers: float) -> None:
    """Store converted fields; where one is not finite, store zeros and count it."""
    if not all(map(math.isfinite, numbers.values())):
        numbers = dict.fromkeys(numbers, 0.0)
        object.__setattr__(metric, "nonfinite", metric.nonfinite + 1)
    for name, number in numbers.items():
        object.__setattr__(metric, name, number)


def _require_weight(what: str, weight: float) -> None:
    if not (math.isfinite(weight) and weight >= 0):
        raise MetricError(f"{what} must be finite and at least 0, given {weight}.")


def _require_weights(weights: Values) -> None:
    array = np.asarray(weights)
    bad = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if bad.size:
        first = int(bad[0])
        raise MetricError(f"Mean weights must be finite and at least 0; weights[{first}] is {array[first]}.")
