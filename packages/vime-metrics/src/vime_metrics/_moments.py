"""Standard deviation from merged moments.

The state is (count, mean, sum of squared distances from the mean); two states merge exactly as in
Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979):
every term is at least 0, so nothing cancels. E[x^2] - E[x]^2 is never formed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self, final

from vime_metrics._errors import MetricError
from vime_metrics._metric import Metric
from vime_metrics._numbers import Values, as_array, as_count, as_float, split_finite


@final
@dataclass(frozen=True, slots=True)
class Std(Metric):
    """Standard deviation, biased (divided by n) or `unbiased` (by n - 1); NaN where nothing (or one value) was added.

    >>> Std.of([1e8, 1e8 + 1]).value
    0.5
    >>> round((Std.of([1.0], unbiased=True) + Std.of([3.0], unbiased=True)).value, 6)
    1.414214
    """

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    nonfinite: int = 0
    unbiased: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", as_count(self.count, "Std.count"))
        mean, squares = as_float(self.mean, "Std.mean"), as_float(self.squares, "Std.squares")
        if squares < 0:
            raise MetricError(f"Std.squares is a sum of squares and at least 0, given {squares}.")
        if not (math.isfinite(mean) and math.isfinite(squares)):
            mean = squares = 0.0
            object.__setattr__(self, "nonfinite", self.nonfinite + max(self.count, 1))
            object.__setattr__(self, "count", 0)
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "squares", squares)

    @classmethod
    def of(cls, values: Values, unbiased: bool = False) -> Self:
        """Standard deviation of `values`, any shape, in two passes."""
        finite, nonfinite = split_finite(as_array(values, "Std values"))
        if not finite.size:
            return cls(nonfinite=nonfinite, unbiased=unbiased)
        mean = float(finite.mean())
        away = finite - mean
        return cls(finite.size, mean, float(away @ away), nonfinite, unbiased)

    def __add__(self, other: Self) -> Self:
        self._require_same_kind(other)
        if self.unbiased != other.unbiased:
            raise MetricError("cannot add a biased to an unbiased Std: choose one for the key.")
        nonfinite = self.nonfinite + other.nonfinite
        if not (self.count and other.count):
            one = self if self.count else other
            return type(self)(one.count, one.mean, one.squares, nonfinite, self.unbiased)
        count = self.count + other.count
        mean = (self.count * self.mean + other.count * other.mean) / count
        apart = self.mean - other.mean
        between = apart * apart * (self.count * other.count / count)
        return type(self)(count, mean, (self.squares + other.squares) + between, nonfinite, self.unbiased)

    @property
    def empty(self) -> Self:
        """No values, the same `unbiased`."""
        return type(self)(unbiased=self.unbiased)

    @property
    def finite_value(self) -> float:
        """sqrt(squares / (count - unbiased))."""
        degrees = self.count - self.unbiased
        return math.sqrt(self.squares / degrees) if degrees > 0 else math.nan
