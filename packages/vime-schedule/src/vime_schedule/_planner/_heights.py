"""How much rows cost at least in lockstep, and how high each of them best is.

Let H_i be the height of row i, the cost of its dearest bin, rows dearest first, and h_i <= H_i its least value: samples
above half of the capacity do not share a bin, so the (i * dp)-th dearest of them is in row i or above it. For a price
(`_prices`) let v be the limits of the bins, dearest first, and W what small samples are worth. Since min(H, v) is
supermodular, bins cost most together when the highest limits are in the highest rows:

    total cost <= W + sum_i f_i(H_i),    f_i(H) = the sum of min(H, v) over the limits i * dp to i * dp + dp - 1.

Every f_i is concave. So the least sum of heights raises the rows from h_i where most of their bins follow, and rows
whose bins are full last; where several are as good, those that are raised end level.

Laws
- No rows cost less than `bound`, for any cost of samples.
- `targets` and `lowered` never rise from row to row and add up to about the bound; the first never fall below h_i.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from math import fsum
from operator import neg

from vime_schedule._planner._bounds import cost_below, pigeonhole
from vime_schedule._planner._items import Items
from vime_schedule._planner._levels import find_rises, level_rows
from vime_schedule._planner._prices import Prices

COARSE = 8  # prices tried first, evenly
FINE = 4  # halvings of the step around the best of them
FEW = 8  # bins of a row that stand for all in that search, at least


class RowHeights:
    """The bound and the best heights of `num_rows` rows of `dp` bins that hold `items`, each up to `capacity`."""

    def __init__(self, items: Items, dp: int, num_rows: int, capacity: int) -> None:
        self._dp = dp
        self._total = items.cost_below[-1]
        self._prices_of = partial(Prices, items, dp * num_rows, capacity)  # made twice, since they take much memory
        prices = self._prices_of()
        least = [pigeonhole(cost_below([items]), dp * num_rows), *prices.large_costs()[dp : dp * num_rows : dp]]
        self._least = [float(cost) for cost in least] + [0.0] * (num_rows - len(least))
        highest = max(least[0] / capacity, prices.densest())
        self._price = self._best_price(prices, least[0] / capacity)
        self.bound = max(self._bound_at(prices, self._price), self._bound_at(prices, highest))

    def _best_price(self, prices: Prices, highest: float) -> float:
        """The price with the best bound, by a search in which a few bins of each row stand for all."""
        every = next(n for n in range(max(1, self._dp // FEW), 0, -1) if self._dp % n == 0)
        step = highest / COARSE
        best = max((self._bound_at(prices, k * step, every), k * step) for k in range(COARSE))
        for _ in range(FINE):
            step /= 2
            near = (max(0.0, best[1] - step), best[1] + step)
            best = max(best, *((self._bound_at(prices, price, every), price) for price in near))
        return best[1]

    def _bound_at(self, prices: Prices, price: float, every: int = 1) -> float:
        """The least sum of heights that holds the total cost; an estimate if only `every` n-th bin is looked at."""
        dp, limits = self._dp // every, prices.limits(price, every)
        missing, raised = self._missing(prices.worth(price), limits, every), 0.0
        lowest = limits[dp - 1 :: dp]
        lengths = [fsum([low - height for low, height in zip(lowest, self._least, strict=True) if low > height])]
        if missing > lengths[0] * dp:
            lengths = [fsum([rise.high - rise.low for rise in rises]) for rises in find_rises(self._least, limits, dp)]
        for bins, length in zip(range(dp, 0, -1), lengths, strict=False):
            more = min(length, max(0.0, missing) / bins)
            raised, missing = raised + more, missing - more * bins
        return fsum(self._least) + raised

    def _missing(self, worth: float, limits: list[float], every: int = 1) -> float:
        """How much more than the rows at their least heights hold there is, for `every` n-th bin."""
        dp, held = self._dp // every, []
        for row, height in enumerate(self._least):
            full = bisect_left(limits, -height, row * dp, row * dp + dp, key=neg)
            held += [height * (full - row * dp), *limits[full : row * dp + dp]]
        return (self._total - worth) / every - fsum(held)

    def targets(self) -> list[int]:
        """What the bins of each row should cost."""
        prices = self._prices_of()
        limits = prices.limits(self._price)
        missing = self._missing(prices.worth(self._price), limits)
        return sorted(map(int, level_rows(self._least, limits, self._dp, missing)), reverse=True)

    def lowered(self, tops: Sequence[int]) -> list[int]:
        """Heights in proportion to `tops`, which fall, that add up to about the bound."""
        scale = self.bound / sum(tops)
        wanted = [max(int(top * scale), int(least)) for top, least in zip(tops, self._least, strict=True)]
        return list(accumulate(wanted, min))
