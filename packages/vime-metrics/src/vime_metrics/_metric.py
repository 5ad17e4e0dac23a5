"""What every metric is: a value you can add.

Laws (M1): `a + b == b + a`; `(a + b) + c == a + (b + c)`; `a + a.empty == a`.
They hold bit for bit for counts, extremes, histograms and quantiles, and to fp64 rounding where reals are summed.

NaN and infinity are never mixed into a sum: they are counted in `nonfinite` and left out of everything else,
so the finite part stays readable whatever happened. `value` is NaN as long as `nonfinite` is not 0.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Self

from vime_metrics._errors import MetricError


class Metric(ABC):
    """A number that is still being collected; frozen, and added with `+`."""

    __slots__ = ()

    nonfinite: int
    """How many NaN and infinite values were left out."""

    @property
    @abstractmethod
    def finite_value(self) -> float:
        """The scalar over the finite values alone."""

    @abstractmethod
    def __add__(self, other: Self) -> Self:
        """Both collections pooled."""

    @property
    def value(self) -> float:
        """The scalar: NaN where nothing was added, and where a NaN or an infinity was."""
        return math.nan if self.nonfinite else self.finite_value

    def report(self, name: str) -> dict[str, float]:
        """What is logged under `name`; most metrics report one number."""
        return {name: self.value}

    @property
    def empty(self) -> Self:
        """The metric of the same kind and settings that nothing was added to."""
        return type(self)()

    @property
    def finite(self) -> Self:
        """The same metric as if the NaN and infinite values had not been seen."""
        return replace(self, nonfinite=0)  # type: ignore[type-var]  # every metric is a dataclass

    def _require_same_kind(self, other: object) -> None:
        if type(other) is not type(self):
            raise MetricError(
                f"cannot add {type(other).__name__} to {type(self).__name__}: only metrics of one kind add."
            )
