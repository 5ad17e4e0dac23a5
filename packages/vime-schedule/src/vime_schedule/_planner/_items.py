"""The samples of one step as the packers see them: integers, dearest first.

Laws
- Costs are whole numbers of at least 1 that add up to about 2**42, so sums are exact and the same on every machine.
- Samples above the capacity come first, then cost falls; equal costs fall in load, then in cost before scaling, then
  rise in position (S5).
- `is_monotone` says that loads fall along with costs, which every cost that grows with length gives.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import neg

from vime_schedule._planner._problem import Problem

TOTAL_COST = 2**42
NOTHING = 1e-250  # costs that add up to less are all alike


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """Samples of one step; an item is an index into these lists.

    Args:
        indices: all items, 0, 1, 2, ...; bins share these numbers, since each made anew takes 32 bytes.
        positions: the sample of each item.
        loads: what it adds to its micro-batch, in units of the capacity.
        costs: its scaled cost.
        cost_below: what the first k items cost, for every k up to their number.
        is_monotone: whether neither `loads` nor `costs` ever rise.
    """

    indices: Sequence[int]
    positions: Sequence[int]
    loads: Sequence[int]
    costs: Sequence[int]
    cost_below: Sequence[int]
    is_monotone: bool

    def __len__(self) -> int:
        return len(self.positions)

    def count_above(self, load: int) -> int:
        """How many items hold more than `load`."""
        if self.is_monotone:
            return bisect_left(self.loads, -load, key=neg)
        return sum([held > load for held in self.loads])

    def first(self, count: int) -> Items:
        """The dearest of them."""
        return Items(
            indices=self.indices[:count],
            positions=self.positions[:count],
            loads=self.loads[:count],
            costs=self.costs[:count],
            cost_below=self.cost_below[: count + 1],
            is_monotone=self.is_monotone,
        )


def sort_items(
    positions: Sequence[int],
    loads: list[int],
    costs: list[int],
    capacity: int,
    indices: Sequence[int] | None = None,
) -> Items:
    """The samples at `positions`, dearest first; `loads` and `costs` hold theirs in the same order."""
    is_monotone = never_rises(loads) and never_rises(costs)
    if not is_monotone:
        order = sorted(range(len(positions)), key=lambda k: (loads[k] <= capacity, -costs[k], -loads[k]))
        positions = [positions[k] for k in order]
        loads, costs = [loads[k] for k in order], [costs[k] for k in order]
        is_monotone = never_rises(loads) and never_rises(costs)
    return Items(
        indices=range(len(positions)) if indices is None else indices,
        positions=positions,
        loads=loads,
        costs=costs,
        cost_below=array("q", accumulate(costs, initial=0)),  # a quarter of the memory of a list
        is_monotone=is_monotone,
    )


def split_by_signature(problem: Problem, positions: Sequence[int], total_cost: float) -> list[Items]:
    """The samples of each signature, in the order in which signatures first appear; one scale for all costs.

    `total_cost` is what the samples at `positions` cost together.
    """
    scale = TOTAL_COST / total_cost if total_cost > NOTHING else 0.0
    members: dict[int, list[int]] = {}
    if problem.signatures is not None:
        for position in positions:
            members.setdefault(problem.signatures[position], []).append(position)
    classes = []
    for chosen in members.values() or [positions]:
        order = sorted(chosen, key=problem.costs.__getitem__, reverse=True)  # floats, quick to compare
        loads = list(map(problem.shares.__getitem__, order))
        costs = [int(cost * scale) + 1 for cost in map(problem.costs.__getitem__, order)]
        classes.append(sort_items(order, loads, costs, problem.capacity, problem.everyone[: len(order)]))
    return classes


def never_rises(values: list[int] | list[float]) -> bool:
    """Whether each value is at most the one before it; sorting what is sorted is the fastest test."""
    return values == sorted(values, reverse=True)
