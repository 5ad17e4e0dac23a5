"""Std: the pooled mean first, then squared distances from it. Every term is at least 0, so nothing cancels."""

from __future__ import annotations

from typing import final

import numpy as np

from vime_metrics._moments import Std
from vime_metrics._numbers import Array
from vime_metrics._reduction.blocks._block import Block, Mine, column, ratio


@final
class StdBlock(Block[Std]):
    """24 bytes per metric: count and sum, then squares."""

    has_second = True

    def __init__(self, keys: tuple[str, ...], copies: tuple[int, ...], unbiased: tuple[bool, ...]) -> None:
        super().__init__(keys, copies)
        self.first_size = 2 * len(keys)
        self._unbiased = np.array(unbiased, np.float64)

    def write_first(self, mine: Mine[Std], out: Array) -> None:
        """Counts, then sums."""
        counts, sums = out.reshape(2, -1)
        counts[mine.at], means, _ = self._moments(mine)
        sums[mine.at] = counts[mine.at] * means

    def check(self, first: Array) -> None:
        """Copies divide counts."""
        self._require_whole(first.reshape(2, -1)[0])

    def second(self, mine: Mine[Std], first: Array, peaks: Array) -> Array:
        """Squared distances of this rank's values from the pooled mean."""
        counts, sums = first.reshape(2, -1)
        pooled = ratio(sums, counts)[mine.at]
        count, mean, squares = self._moments(mine)
        apart = np.where(count > 0, mean - pooled, 0.0)
        out = np.zeros(len(self.keys))
        out[mine.at] = squares + count * apart * apart
        return out

    def finish(self, first: Array, peaks: Array, second: Array) -> Array:
        """Root of squares by degrees of freedom, both over the copies."""
        degrees = first.reshape(2, -1)[0] / self.copies - self._unbiased
        return np.sqrt(ratio(second / self.copies, np.maximum(degrees, 0.0)))

    @staticmethod
    def _moments(mine: Mine[Std]) -> tuple[Array, Array, Array]:
        return (
            column([metric.count for metric in mine.metrics]),
            column([metric.mean for metric in mine.metrics]),
            column([metric.squares for metric in mine.metrics]),
        )
