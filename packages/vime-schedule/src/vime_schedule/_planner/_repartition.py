"""Divide the items of two bins anew, trying every division.

Laws
- The best division is the one whose dearer part costs least; both parts fit the capacity and none is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vime_schedule._planner._items import Items

MOST_ITEMS = 8  # 2**7 divisions


class Halves(NamedTuple):
    """Two bins, and the cost of the dearer one."""

    first: list[int]
    second: list[int]
    cost: int


def divide_in_two(items: Items, held: Sequence[int], capacity: int) -> Halves | None:
    """The best division of `held`; None if there are too many items, or no division fits.

    >>> from vime_schedule._planner._items import sort_items
    >>> items = sort_items([0, 1, 2, 3], loads=[5, 4, 2, 1], costs=[5, 4, 2, 1], capacity=10)
    >>> divide_in_two(items, [0, 1, 2, 3], 10)
    Halves(first=[1, 2], second=[0, 3], cost=6)
    """
    if not 2 <= len(held) <= MOST_ITEMS:
        return None
    *others, last = sorted(held)
    costs, loads = [0], [0]
    for item in others:  # the last item stays in the second part: every division is seen once
        cost, load = items.costs[item], items.loads[item]
        costs += [cost + so_far for so_far in costs]
        loads += [load + so_far for so_far in loads]
    total = costs[-1] + items.costs[last]
    least = loads[-1] + items.loads[last] - capacity
    fitting = [k for k, load in enumerate(loads) if least <= load <= capacity and k]
    if not fitting:
        return None
    best = min(fitting, key=lambda k: max(costs[k], total - costs[k]))
    first = [item for k, item in enumerate(others) if best >> k & 1]
    second = [item for k, item in enumerate(others) if not best >> k & 1]
    return Halves(first, [*second, last], max(costs[best], total - costs[best]))
