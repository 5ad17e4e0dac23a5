"""A histogram over the bits of a float64: the mergeable sketch behind `Quantiles`.

A bucket is the sign, the exponent and the first 7 mantissa bits of a value, so it spans at most
1/128 of its lower edge.
Laws:
- a value and the middle of its bucket differ by at most `RELATIVE_ERROR` = 1/256 of the value
  (below 2**-1022, where floats have no more precision to give, by at most 2**-1030);
- the bucket of a value depends on its bits alone: no logarithm, so every machine agrees;
- the sketch of a multiset does not depend on the order in which it was collected or merged;
- it holds at most 2**19 buckets, 8 bytes of count each, for any data; a decade of magnitudes fills at most 426.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from vime_metrics._numbers import Array

RELATIVE_ERROR = 2.0**-8
_SHIFT = np.int64(52 - 7)
_CHUNK = 1 << 18


@dataclass(frozen=True, slots=True, eq=False)
class Sketch:
    """Bucket numbers in ascending order and how many values each holds; both shape [buckets], int64."""

    buckets: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, values: Array) -> Self:
        """Sketch of finite values in passes of `_CHUNK`, so that memory does not grow with their number."""
        if not values.size:
            return cls(np.empty(0, np.int64), np.empty(0, np.int64))
        low, high = bucket_of(np.array([values.min(), values.max()]))
        dense = np.zeros(int(high - low) + 1, np.int64)
        for start in range(0, values.size, _CHUNK):
            dense += np.bincount(bucket_of(values[start : start + _CHUNK]) - low, minlength=dense.size)
        filled = np.flatnonzero(dense)
        return cls(filled + low, dense[filled])

    def __add__(self, other: Self) -> Self:
        buckets, where = np.unique(np.concatenate([self.buckets, other.buckets]), return_inverse=True)
        counts = np.zeros(buckets.size, np.int64)
        np.add.at(counts, where, np.concatenate([self.counts, other.counts]))
        return type(self)(buckets, counts)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Sketch)
            and np.array_equal(self.buckets, other.buckets)
            and np.array_equal(self.counts, other.counts)
        )

    __hash__ = None  # type: ignore[assignment]  # arrays inside

    @property
    def size(self) -> int:
        """How many values were sketched."""
        return int(self.counts.sum())

    def at(self, positions: NDArray[np.int64]) -> Array:
        """Estimates of the values at `positions` of the sorted data."""
        found = np.searchsorted(np.cumsum(self.counts), positions, side="right")
        return middle_of(self.buckets[found])


def bucket_of(values: Array) -> NDArray[np.int64]:
    """Bucket of each finite value; ascending with the value, 0 and up for values of at least 0."""
    magnitude: NDArray[np.int64] = np.abs(values).view(np.int64) >> _SHIFT
    return np.where(values < 0, ~magnitude, magnitude)


def middle_of(buckets: NDArray[np.int64]) -> Array:
    """Middle of each bucket."""
    magnitude = np.where(buckets < 0, ~buckets, buckets)
    low = (magnitude << _SHIFT).view(np.float64)
    high = (((magnitude + 1) << _SHIFT) - 1).view(np.float64)
    middle = np.where(magnitude == 0, 0.0, low + (high - low) / 2)
    return np.where(buckets < 0, -middle, middle)
