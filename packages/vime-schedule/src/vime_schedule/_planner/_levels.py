"""How high rows must be to hold a total cost, when each bin can follow its row only up to a limit.

A row that rises pays once for the rise, and every bin that follows holds that much more. So rows rise first where all
of their bins follow, then where all but one do, and so on; those that rise together end level.

Laws
- No other heights above the least ones add up to less and hold as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import NamedTuple

HALVINGS = 30  # of the level to which rows are raised together


class Rise(NamedTuple):
    """Row `row` may rise from `low` to `high` while the same number of its bins follow."""

    row: int
    low: float
    high: float


def level_rows(least: Sequence[float], limits: Sequence[float], dp: int, missing: float) -> list[float]:
    """Raise rows from their least heights until they hold `missing` more, or nothing follows.

    `limits` holds those of the `dp` bins of each row in turn, highest first.

    >>> list(map(round, level_rows([5.0, 3.0], [9.0, 9.0, 9.0, 4.0], dp=2, missing=4.0)))
    [6, 4]
    """
    heights = list(least)
    for place, rises in enumerate(find_rises(least, limits, dp)):
        if missing <= 0:
            break
        wanted = missing / (dp - place)
        level = _level_for(rises, wanted)
        for rise in rises:
            heights[rise.row] = max(rise.low, min(rise.high, level))
        missing -= min(wanted, fsum([rise.high - rise.low for rise in rises])) * (dp - place)
    return heights


def find_rises(least: Sequence[float], limits: Sequence[float], dp: int) -> list[list[Rise]]:
    """How rows may rise from their least heights, by the number of bins that follow: dp, dp - 1, ..., 1."""
    rises: list[list[Rise]] = [[] for _ in range(dp)]
    for row, low in enumerate(least):
        for place, high in enumerate(reversed(limits[row * dp : row * dp + dp])):
            if high > low:
                rises[place].append(Rise(row, low, high))
                low = high
    return rises


def _level_for(rises: Sequence[Rise], wanted: float) -> float:
    """The level to which rows that rise together have risen by `wanted` in total, or have all come to their ends."""
    low, high = 0.0, max([rise.high for rise in rises], default=0.0)
    for _ in range(HALVINGS):
        level = (low + high) / 2
        if fsum([min(rise.high, level) - rise.low for rise in rises if level > rise.low]) < wanted:
            low = level
        else:
            high = level
    return high
