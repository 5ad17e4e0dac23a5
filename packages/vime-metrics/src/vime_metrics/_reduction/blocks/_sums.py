"""Sum, Count, Mean and Rate: plain columns of sums."""

from __future__ import annotations

from typing import final

import numpy as np

from vime_metrics._numbers import Array
from vime_metrics._reduction._schema import NONFINITE_SUFFIX
from vime_metrics._reduction.blocks._block import Block, Mine, column, ratio
from vime_metrics._sums import Count, Mean, Rate, Sum


@final
class SumBlock(Block[Sum]):
    """8 bytes per metric: the total."""

    def __init__(self, keys: tuple[str, ...], copies: tuple[int, ...]) -> None:
        super().__init__(keys, copies)
        self.first_size = len(keys)

    def write_first(self, mine: Mine[Sum], out: Array) -> None:
        """Totals."""
        out[mine.at] = column([metric.total for metric in mine.metrics])

    def finish(self, first: Array, peaks: Array, second: Array) -> Array:
        """Totals over the copies."""
        return first / self.copies


@final
class CountBlock(Block[Count]):
    """8 bytes per metric: the count."""

    def __init__(self, keys: tuple[str, ...], copies: tuple[int, ...]) -> None:
        super().__init__(keys, copies)
        self.first_size = len(keys)
        self._spoils = np.array([key.endswith(NONFINITE_SUFFIX) for key in keys])

    def write_first(self, mine: Mine[Count], out: Array) -> None:
        """Counts."""
        out[mine.at] = column([metric.number for metric in mine.metrics])

    def check(self, first: Array) -> None:
        """Copies divide counts, except those of NaN, which one copy may have and the other not."""
        self._require_whole(np.where(self._spoils, 0.0, first))

    def finish(self, first: Array, peaks: Array, second: Array) -> Array:
        """Counts over the copies."""
        return first / self.copies


@final
class MeanBlock(Block[Mean]):
    """16 bytes per metric: total and weight. Copies cancel in the ratio."""

    def __init__(self, keys: tuple[str, ...], copies: tuple[int, ...]) -> None:
        super().__init__(keys, copies)
        self.first_size = 2 * len(keys)

    def write_first(self, mine: Mine[Mean], out: Array) -> None:
        """Totals, then weights."""
        totals, weights = out.reshape(2, -1)
        totals[mine.at] = column([metric.total for metric in mine.metrics])
        weights[mine.at] = column([metric.weight for metric in mine.metrics])

    def finish(self, first: Array, peaks: Array, second: Array) -> Array:
        """Total by weight."""
        totals, weights = first.reshape(2, -1)
        return ratio(totals, weights)


@final
class RateBlock(Block[Rate]):
    """16 bytes per metric: amount and seconds. Copies cancel in the ratio."""

    def __init__(self, keys: tuple[str, ...], copies: tuple[int, ...]) -> None:
        super().__init__(keys, copies)
        self.first_size = 2 * len(keys)

    def write_first(self, mine: Mine[Rate], out: Array) -> None:
        """Amounts, then seconds."""
        amounts, seconds = out.reshape(2, -1)
        amounts[mine.at] = column([metric.amount for metric in mine.metrics])
        seconds[mine.at] = column([metric.seconds for metric in mine.metrics])

    def finish(self, first: Array, peaks: Array, second: Array) -> Array:
        """Amount by seconds."""
        amounts, seconds = first.reshape(2, -1)
        return ratio(amounts, seconds)
