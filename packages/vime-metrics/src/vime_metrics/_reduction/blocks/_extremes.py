"""Max, Min and Last: what maxima decide. Copies change none of them."""

from __future__ import annotations

from typing import final

import numpy as np

from vime_metrics._extremes import Last, Max, Min
from vime_metrics._numbers import Array
from vime_metrics._reduction.blocks._block import Block, Mine, column, ratio


@final
class MaxBlock(Block[Max]):
    """8 bytes per metric."""

    def __init__(self, keys: tuple[str, ...], copies: tuple[int, ...]) -> None:
        super().__init__(keys, copies)
        self.peaks_size = len(keys)

    def write_peaks(self, mine: Mine[Max], out: Array) -> None:
        """Maxima."""
        out[mine.at] = column([metric.extreme for metric in mine.metrics])

    def finish(self, first: Array, peaks: Array, second: Array) -> Array:
        """Maxima, NaN where no rank had a value."""
        return np.where(peaks == -np.inf, np.nan, peaks)


@final
class MinBlock(Block[Min]):
    """8 bytes per metric: the negated minimum, so that one maximum serves both."""

    def __init__(self, keys: tuple[str, ...], copies: tuple[int, ...]) -> None:
        super().__init__(keys, copies)
        self.peaks_size = len(keys)

    def write_peaks(self, mine: Mine[Min], out: Array) -> None:
        """Negated minima."""
        out[mine.at] = -column([metric.extreme for metric in mine.metrics])

    def finish(self, first: Array, peaks: Array, second: Array) -> Array:
        """Minima, NaN where no rank had a value."""
        return np.where(peaks == -np.inf, np.nan, -peaks)


@final
class LastBlock(Block[Last]):
    """24 bytes per metric: the highest step, then total and number of the values that hold it."""

    has_second = True

    def __init__(self, keys: tuple[str, ...], copies: tuple[int, ...]) -> None:
        super().__init__(keys, copies)
        self.peaks_size = len(keys)

    def write_peaks(self, mine: Mine[Last], out: Array) -> None:
        """Steps."""
        out[mine.at] = self._steps(mine)

    def second(self, mine: Mine[Last], first: Array, peaks: Array) -> Array:
        """Totals and holders, 0 on ranks whose step is older."""
        out = np.zeros((2, len(self.keys)))
        newest = self._steps(mine) == peaks[mine.at]
        out[0, mine.at] = newest * column([metric.total for metric in mine.metrics])
        out[1, mine.at] = newest * column([metric.holders for metric in mine.metrics])
        return out.reshape(-1)

    def finish(self, first: Array, peaks: Array, second: Array) -> Array:
        """The mean over those that hold the highest step."""
        totals, holders = second.reshape(2, -1)
        return ratio(totals, holders)

    @staticmethod
    def _steps(mine: Mine[Last]) -> Array:
        return column([metric.newest for metric in mine.metrics])
