"""The samples of one step as the packers see them: integers, dearest first.

Laws
- Costs are whole numbers of at least 1 that add up to about 2**42, so sums are exact and the same on every machine.
- Samples above the capacity come first, then cost falls; equal costs fall in load, then rise in position (S5).
- `is_monotone` says that loads fall along with costs, which every cost that grows with length gives.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from math import fsum
from operator import gt, neg

from vime_schedule._planner._problem import Problem

TOTAL_COST = 2**42
NOTHING = 1e-250  # costs that add up to less are all alike


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """Samples of one step; an item is an index into these lists.

    Args:
        positions: the sample of each item.
        loads: what it adds to its micro-batch, in units of the capacity.
        costs: its scaled cost.
        is_monotone: whether neither `loads` nor `costs` ever rise.
    """

    positions: Sequence[int]
    loads: Sequence[int]
    costs: Sequence[int]
    is_monotone: bool

    def __len__(self) -> int:
        return len(self.positions)

    def count_above(self, load: int) -> int:
        """How many items hold more than `load`."""
        if self.is_monotone:
            return bisect_left(self.loads, -load, key=neg)
        return sum([held > load for held in self.loads])


def sort_items(positions: Sequence[int], loads: Sequence[int], costs: Sequence[int], capacity: int) -> Items:
    """The samples at `positions`, dearest first; `loads` and `costs` hold theirs in the same order."""
    by_cost = list(map(float, costs))  # twice as fast to compare
    order = sorted(range(len(positions)), key=by_cost.__getitem__, reverse=True)
    held, paid = list(map(loads.__getitem__, order)), list(map(costs.__getitem__, order))
    is_monotone = _never_rises(held)
    if not is_monotone:
        order.sort(key=lambda k: (loads[k] <= capacity, -costs[k], -loads[k]))
        held, paid = list(map(loads.__getitem__, order)), list(map(costs.__getitem__, order))
        is_monotone = _never_rises(held) and _never_rises(paid)
    return Items(
        positions=array("q", map(positions.__getitem__, order)),  # a quarter of the memory of a list
        loads=held,
        costs=array("q", paid),
        is_monotone=is_monotone,
    )


def split_by_signature(problem: Problem, positions: Sequence[int]) -> list[Items]:
    """The samples of each signature, in the order in which signatures first appear; one scale for all costs."""
    loads = list(map(problem.shares.__getitem__, positions))
    costs = _scale(list(map(problem.costs.__getitem__, positions)))
    if problem.signatures is None:
        return [sort_items(positions, loads, costs, problem.capacity)]
    members: dict[int, list[int]] = {}
    for k, position in enumerate(positions):
        members.setdefault(problem.signatures[position], []).append(k)
    return [
        sort_items(
            [positions[k] for k in chosen], [loads[k] for k in chosen], [costs[k] for k in chosen], problem.capacity
        )
        for chosen in members.values()
    ]


def _scale(costs: Sequence[float]) -> list[int]:
    """The costs as whole numbers of at least 1 that add up to about `TOTAL_COST`."""
    total = fsum(costs)
    scale = TOTAL_COST / total if total > NOTHING else 0.0
    return [int(cost * scale) + 1 for cost in costs]


def _never_rises(values: list[int]) -> bool:
    return not any(map(gt, islice(values, 1, None), values))
