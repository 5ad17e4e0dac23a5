"""The most that bins can cost, for a price on what they hold.

Put a price p on a unit of load. A small sample (at most half of the capacity) is worth its cost less p times its load,
where that is positive. Large samples do not share a bin. So a bin with a large sample costs at most the sample, plus p
for every unit of the room beside it, plus what its small samples are worth; any other bin at most p times the capacity,
plus that worth. Where no small sample that fits the room is as dense as p, its density takes the place of p.

Laws
- For every price, no bins cost more together than their limits and the worth of all small samples.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, islice
from operator import neg, truediv

from vime_schedule._planner._items import Items, never_rises


class Prices:
    """Worth and limits for the samples of one step.

    Args:
        items: the samples.
        num_bins: bins that hold them; no plan exists if there are more large samples.
        capacity: the most load of a bin.
    """

    def __init__(self, items: Items, num_bins: int, capacity: int) -> None:
        costs, loads = items.costs, items.loads
        if not items.is_monotone:
            order = sorted(range(len(items)), key=loads.__getitem__, reverse=True)
            costs, loads = [costs[item] for item in order], [loads[item] for item in order]
        first = items.count_above(capacity // 2)
        densities = list(map(truediv, islice(costs, first, None), islice(loads, first, None)))
        rooms = [max(0, capacity - load) for load in loads[:first]]
        within = [bisect_left(loads, -room, first, key=neg) - first for room in rooms]  # the longest small one
        self._num_bins = num_bins
        self._capacity = capacity
        self._cost_below, self._loads, self._first = items.cost_below, loads, first
        densest: Sequence[float] = densities  # of the small samples from each on
        if not (items.is_monotone and never_rises(densities)):
            densest = list(accumulate(reversed(densities), max))[::-1]
            order = sorted(range(len(densities)), key=densities.__getitem__, reverse=True)
            self._cost_below = list(accumulate([costs[first + k] for k in order], initial=0))
            self._loads, self._first = [loads[first + k] for k in order], 0
            densities = [densities[k] for k in order]
        fillings = [densest[k] if k < len(densest) else 0.0 for k in within]
        self._densities = array("d", densities)
        self._large = sorted(zip(costs[:first], rooms, fillings, strict=True), reverse=True)[:num_bins]

    def large_costs(self) -> list[int]:
        """The costs of the large samples, dearest first."""
        return [cost for cost, _, _ in self._large]

    def densest(self) -> float:
        """The price from which on no small sample is worth anything."""
        return self._densities[0] if self._densities else 0.0

    def worth(self, price: float) -> float:
        """What all small samples are worth."""
        cut = bisect_left(self._densities, -price, key=neg)
        cost = self._cost_below[self._first + cut] - self._cost_below[self._first]
        return cost - price * sum(islice(self._loads, self._first, self._first + cut))

    def limits(self, price: float, every: int = 1) -> list[float]:
        """The limit of each bin, or of every n-th of them, dearest first."""
        large = self._large[every // 2 :: every] if every > 1 else self._large
        limits = [cost + room * (price if price < density else density) for cost, room, density in large]
        limits += [self._capacity * min(price, self.densest())] * (self._num_bins // every - len(limits))
        limits.sort(reverse=True)
        return limits
