"""What no plan of the same samples can beat, whatever it does.

Laws
- Every legal plan costs at least its bounds; the tests hold them against exhaustive search.
- No assumption is made on how a cost depends on length; bounds are tightest where it is convex.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, chain
from math import fsum
from operator import neg, truediv

from vime_schedule._planner._items import Items, never_rises

COARSE = 8  # prices tried first, evenly
FINE = 4  # halvings of the step around the best of them


def step_bound(classes: Sequence[Items], dp: int, num_rows: int) -> float:
    """The least cost of the dearest of `dp` ranks, each with samples in `num_rows` micro-batches.

    Of the k * dp + 1 dearest samples some rank has k + 1, which cost at least as much as the k + 1 cheapest of them.
    The rank of the dearest sample has at least one more in each other micro-batch.
    """
    below = _cost_below(classes)
    others = below[-1] - below[-num_rows]
    return max(below[-1] / dp, _pigeonhole(below, dp), below[1] + others)


def _cost_below(classes: Sequence[Items]) -> Sequence[int]:
    """What the k dearest samples cost, for every k."""
    if len(classes) == 1 and classes[0].is_monotone:
        return classes[0].cost_below
    falling = sorted(chain.from_iterable(items.costs for items in classes), reverse=True)
    return list(accumulate(falling, initial=0))


def _pigeonhole(below: Sequence[int], holes: int) -> int:
    """The least cost of the dearest of `holes` sets that hold all samples, the k dearest of which cost `below[k]`."""
    return max(below[k * holes + 1] - below[k * holes - k] for k in range((len(below) - 2) // holes + 1))


def lockstep_bound(items: Items, dp: int, num_rows: int, capacity: int) -> float:
    """The least sum over rows of the dearest bin, for `num_rows` rows of `dp` bins.

    Let H_i be the height of row i, dearest first, and h_i <= H_i its least value. Rows lose what their bins cannot
    hold: sum H_i = total / dp + sum (H_i - mean of row i). Put a price p on a unit of load. A sample is worth its cost
    less its load times p, where that is positive, and a bin cannot cost more than min(H_i, capacity * p) plus what
    its samples are worth. A sample above half of the capacity is alone of its kind in its bin, so it is worth only what
    it and the densest filling of its room cost beyond capacity * p. Hence, for every p,

        sum H_i >= total / dp + sum_i max(0, h_i - capacity * p) - (worth of all samples at p) / dp.
    """
    prices = _Prices(items, dp, num_rows, capacity)
    step = prices.highest() / COARSE
    best, at = max((prices.loss(k * step), k * step) for k in range(COARSE))
    for _ in range(FINE):
        step /= 2
        best, at = max((best, at), *((prices.loss(price), price) for price in (max(0.0, at - step), at + step)))
    return items.cost_below[-1] / dp + max(0.0, best)


class _Prices:
    """What the rows lose, in cost per rank, as a function of the price of a unit of load."""

    def __init__(self, items: Items, dp: int, num_rows: int, capacity: int) -> None:
        costs, loads = items.costs, items.loads
        if not items.is_monotone:
            order = sorted(range(len(items)), key=loads.__getitem__, reverse=True)
            costs, loads = [costs[item] for item in order], [loads[item] for item in order]
        num_large = items.count_above(capacity // 2)
        small_costs, small_loads = costs[num_large:], loads[num_large:]
        quotients = list(map(truediv, small_costs, small_loads))
        is_falling, densities = never_rises(quotients), array("d", quotients)
        del quotients  # four times the memory of the array
        rising, densest = small_loads[::-1], densities[::-1]
        if not is_falling:
            order = sorted(range(len(densities)), key=densities.__getitem__, reverse=True)
            densities = array("d", [densities[k] for k in order])
            small_costs, small_loads = [small_costs[k] for k in order], [small_loads[k] for k in order]
            densest = array("d", accumulate(densest, max))
        self._dp = dp
        self._capacity = capacity
        self._densities = densities
        self._cost_below = array("d", accumulate(small_costs, initial=0))
        self._load_below = array("d", accumulate(small_loads, initial=0))
        dearest_large = sorted(costs[:num_large], reverse=True)
        least = _pigeonhole(_cost_below([items]), dp * num_rows)
        self._heights = [least, *dearest_large[dp : dp * num_rows : dp]]
        rooms = [max(0, capacity - load) for load in loads[:num_large]]
        reach = [bisect_right(rising, room) for room in rooms]
        fillings = [densest[k - 1] if k else 0.0 for k in reach]
        self._large = sorted(zip(costs[:num_large], rooms, fillings, strict=True), reverse=True)

    def highest(self) -> float:
        """The price from which on nothing is lost."""
        return self._heights[0] / self._capacity

    def loss(self, price: float) -> float:
        """How far the rows stay below their heights in total, at least."""
        level, top = self._capacity * price, self._heights[0]
        gained = fsum([height - level for height in self._heights if height > level])
        cut = bisect_left(self._densities, -price, key=neg)
        worth = [self._cost_below[cut] - price * self._load_below[cut]]
        for cost, room, density in self._large:
            if 2 * cost <= level:  # its room is at most half of the capacity
                break
            filled = cost + room * (price if price < density else density)
            if filled > level:
                worth.append((filled if filled < top else top) - level)
        return gained - fsum(worth) / self._dp
