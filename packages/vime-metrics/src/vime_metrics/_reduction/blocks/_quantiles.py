"""Quantiles: exact while all ranks together hold few values, buckets beyond; the same state as the pooled data.

First: how many values each rank holds, 12 bits each, so that a number serves four ranks.
Peaks: the range of filled buckets.
Second: either the values themselves, each rank behind those of the ranks before it, or the counts of all buckets of
that range.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from vime_metrics._numbers import Array
from vime_metrics._quantiles import EXACT_SIZE, Quantiles
from vime_metrics._reduction.blocks._block import Block, Mine
from vime_metrics._sketch import Sketch

_PER_NUMBER = 4
_BASE = 2 * EXACT_SIZE
_MANY = EXACT_SIZE + 1


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Buckets that any rank fills, as half-open ranges that may be empty: of values below, at and above 0."""

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]

    @classmethod
    def of(cls, peaks: Array) -> _Ranges:
        """From the reduced [highest, -lowest] of the negative and the positive buckets, -inf where there are none."""
        highest, lowest = peaks.reshape(2, 2).T
        empty = np.isinf(highest)
        stops = np.where(empty, 0, highest + 1).astype(np.int64)
        starts = np.where(empty, 0, -lowest).astype(np.int64)
        return cls(np.insert(starts, 1, 0), np.insert(stops, 1, 1))

    def buckets(self) -> NDArray[np.int64]:
        """Every bucket in range, ascending."""
        return np.concatenate([np.arange(a, b) for a, b in zip(self.starts, self.stops, strict=True)])


@final
class QuantilesBlock(Block[Quantiles]):
    """One distribution over `ranks` ranks."""

    has_second = True

    def __init__(self, key: str, copies: int, also: tuple[float, ...], ranks: int) -> None:
        super().__init__((key,), (copies,))
        self._copies = copies
        self._ranks = ranks
        self._shape = Quantiles(also=also)
        self.first_size = math.ceil(ranks / _PER_NUMBER)
        self.peaks_size = 6

    @property
    def names(self) -> tuple[str, ...]:
        """One per quantile asked for."""
        return self._shape.report_names(self.keys[0])

    def write_first(self, mine: Mine[Quantiles], out: Array) -> None:
        """This rank's number of values in its own 12 bits."""
        for metric in mine.metrics:
            slot, digit = divmod(mine.rank, _PER_NUMBER)
            out[slot] = min(metric.count, _MANY) * float(_BASE) ** digit

    def write_peaks(self, mine: Mine[Quantiles], out: Array) -> None:
        """Highest and negated lowest value, then bucket below 0 and above 0."""
        for metric in mine.metrics:
            out[:2] = metric.highest, -metric.lowest
            buckets = metric.as_sketch().buckets
            for at, side in ((2, buckets[buckets < 0]), (4, buckets[buckets > 0])):
                if side.size:
                    out[at : at + 2] = side[-1], -side[0]

    def check(self, first: Array) -> None:
        """Copies divide the number of values, where that number is known."""
        counts = self._counts(first)
        if counts.max(initial=0) < _MANY:
            self._require_whole(counts.sum(keepdims=True).astype(np.float64))

    def second(self, mine: Mine[Quantiles], first: Array, peaks: Array) -> Array:
        """Values or bucket counts."""
        if self._exact(first):
            counts = self._counts(first)
            out = np.zeros(int(counts.sum()))
            start = int(counts[: mine.rank].sum())
            for metric in mine.metrics:
                out[start : start + metric.exact.size] = metric.exact
            return out
        buckets = _Ranges.of(peaks[2:]).buckets()
        out = np.zeros(buckets.size)
        for metric in mine.metrics:
            sketch = metric.as_sketch()
            out[np.searchsorted(buckets, sketch.buckets)] = sketch.counts
        return out

    def finish(self, first: Array, peaks: Array, second: Array) -> Array:
        """The quantiles of the pooled values."""
        return np.array(list(self._pooled(first, peaks, second).report(self.keys[0]).values()))

    def _pooled(self, first: Array, peaks: Array, second: Array) -> Quantiles:
        also = self._shape.also
        if self._exact(first):
            return Quantiles.of(np.sort(second)[:: self._copies], also=also)
        buckets = _Ranges.of(peaks[2:]).buckets()
        filled = np.flatnonzero(second)
        sketch = Sketch(buckets[filled], (second[filled] / self._copies).astype(np.int64))
        return Quantiles(sketch=sketch, highest=float(peaks[0]), lowest=-float(peaks[1]), also=also)

    def _exact(self, first: Array) -> bool:
        return int(self._counts(first).sum()) <= EXACT_SIZE * self._copies and self._counts(first).max() < _MANY

    def _counts(self, first: Array) -> NDArray[np.int64]:
        digits = first.astype(np.int64)[:, None] // _BASE ** np.arange(_PER_NUMBER) % _BASE
        return digits.reshape(-1)[: self._ranks]
