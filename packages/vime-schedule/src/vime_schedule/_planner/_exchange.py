"""Level the costs of groups of bins by moving and swapping single items.

The dearest group gives to one of the cheapest: the item, or the difference of two items, nearest to half of what lies
between them. Groups are the bins of one row (to lower what the row costs), or the ranks (to lower the dearest rank).

Laws
- Capacity and ceilings hold throughout, no bin is emptied, and the dearest group never becomes dearer.
- The work is bounded by a number of moves, never by time (S5).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from itertools import chain, combinations
from operator import floordiv, neg
from typing import NamedTuple, TypeAlias

from vime_schedule._planner._grid import Grid
from vime_schedule._planner._items import Items

UNLIMITED = 2**62
GOOD_ENOUGH = 4  # a transfer within a quarter of the wanted one ends the search for a better one
LOOKS = 16  # items of the dearest group looked at for one transfer
LOOKS_UNDER_CEILINGS = 8  # where most looks fail
BINS = 6  # bins of either group, of their cheapest rows, whose items are traded
TAKEN = 8  # dearest items of each that are traded

Offer: TypeAlias = tuple[int, int, tuple[int, ...], int]  # load and cost of items, these, and their bin


class Transfer(NamedTuple):
    """Give the items `given` to bin `there`, and take `others` back: one or two, and none to two."""

    given: tuple[int, ...]
    others: tuple[int, ...]
    there: int


class Exchange:
    """Groups of bins of one grid, and the moves between them.

    Args:
        grid: changed in place by `run`.
        items: what the bins hold.
        groups: bins of each group.
        ceilings: the most cost of every bin of the grid, as far as it takes items.
        capacity: the most load of a bin.
        tries: how many of the cheapest groups are offered what the dearest wants to give.
    """

    def __init__(
        self,
        grid: Grid,
        items: Items,
        groups: Sequence[Sequence[int]],
        *,
        capacity: int,
        tries: int,
        ceilings: Sequence[int] | None = None,
    ) -> None:
        self._grid = grid
        self._items = items
        self._groups = groups
        self._capacity = capacity
        self._tries = tries
        self._ceilings = ceilings
        self._densest = 0 if ceilings is None else max(map(floordiv, items.costs, items.loads)) + 1
        self._costs = [sum([grid.costs[b] for b in bins]) for bins in groups]
        self._members: dict[int, list[int]] = {}
        self._sets: dict[int, list[Offer]] = {}
        self._roomiest: dict[int, tuple[int, int]] = {}
        self._oversize = items.count_above(capacity)
        self._bin_of = [0] * len(items)

    def run(self, target: int, max_moves: int) -> int:
        """Move items until no group costs more than `target`, nothing helps, or `max_moves` are made; how many were."""
        cost_of = self._costs.__getitem__
        order = sorted(range(len(self._groups)), key=cost_of)
        moves = 0
        while moves < max_moves and self._costs[order[-1]] > target:
            heavy = order.pop()
            least = (self._costs[heavy] - target) // max_moves
            light = self._give(heavy, order, least)
            if light is None:
                break
            order.remove(light)
            insort(order, heavy, key=cost_of)
            insort(order, light, key=cost_of)
            moves += 1
        return moves

    def _give(self, heavy: int, candidates: Sequence[int], least: int) -> int | None:
        """Make one transfer to one of the candidates, cheapest first, that can take `least`; which it was."""
        tried = 0
        for light in candidates:
            wanted = self._costs[heavy] - self._costs[light] >> 1
            if self._ceilings is not None:
                wanted = min(wanted, self._most_room(light)[0])
            if wanted <= least:
                continue
            best = self._best_transfer(heavy, light, wanted) or self._trade(heavy, light, wanted)
            if best is not None:
                self._apply(heavy, light, best)
                return light
            tried += 1
            if tried == self._tries:
                break
        return None

    def _best_transfer(self, heavy: int, light: int, wanted: int) -> Transfer | None:
        """The transfer that lowers `heavy` by the amount nearest to `wanted`.

        Items that cost about `wanted` come first, since cheap items are many and differ little; dearer ones follow,
        then those that cost too little to be enough.
        """
        costs, loads, bins, used = self._items.costs, self._items.loads, self._grid.bins, self._grid.used
        givers, takers, bin_of = self._members_of(heavy), self._members_of(light), self._bin_of
        slack, roomy = self._most_room(light)
        room = self._capacity - used[roomy]
        best: Transfer | None = None
        miss, enough = wanted, wanted // GOOD_ENOUGH
        looks = LOOKS if self._ceilings is None else LOOKS_UNDER_CEILINGS
        split = bisect_left(givers, self._first_below(wanted - enough))
        for item in chain(reversed(givers[max(0, split - looks) : split]), givers[split : split + looks]):
            cost, home = costs[item], bin_of[item]
            excess = cost - wanted
            if loads[item] <= room and cost <= slack and abs(excess) < miss and len(bins[home]) > 1:
                best, miss = Transfer((item,), (), roomy), abs(excess)
            near = bisect_left(takers, self._first_below(excess + 1))
            for other in takers[max(near - 1, 0) : near + 1]:
                off = abs(excess - costs[other])
                if off < miss and self._can_swap(item, other):
                    best, miss = Transfer((item,), (other,), bin_of[other]), off
            if miss <= enough or miss <= -excess:
                break
        return best

    def _trade(self, heavy: int, light: int, wanted: int) -> Transfer | None:
        """The same by one or two items for one or two others that hold about as much, which full bins can.

        A long and a short item cost more than two of middle length, so costs may differ where loads do not.
        """
        if self._ceilings is not None:
            return None
        used, capacity = self._grid.used, self._capacity
        best: Transfer | None = None
        miss, enough = wanted, wanted // GOOD_ENOUGH
        offers = self._sets_of(heavy)
        emptiest = capacity - min([used[b] for b in self._groups[heavy]])
        for load, cost, others, there in self._sets_of(light):
            most = load + capacity - used[there]
            for at in range(bisect_left(offers, (load - emptiest,)), len(offers)):
                given, worth, items, home = offers[at]
                if given > most or miss <= enough:
                    break
                off = abs(worth - cost - wanted)
                if off < miss and used[home] + load - given <= capacity:
                    best, miss = Transfer(items, others, there), off
        return best

    def _sets_of(self, group: int) -> list[Offer]:
        """One or two of the dearest items of each bin of a group, lightest first."""
        return sorted(chain.from_iterable(map(self._sets_in, self._groups[group][-BINS:])))

    def _sets_in(self, b: int) -> list[Offer]:
        """One or two of the dearest items of a bin; kept until the bin changes."""
        if b not in self._sets:
            costs, loads = self._items.costs, self._items.loads
            dearest = sorted(self._grid.bins[b])[:TAKEN]
            self._sets[b] = [(loads[item], costs[item], (item,), b) for item in dearest]
            self._sets[b] += [
                (loads[one] + loads[two], costs[one] + costs[two], (one, two), b)
                for one, two in combinations(dearest, 2)
            ]
        return self._sets[b]

    def _can_swap(self, item: int, other: int) -> bool:
        """Whether both bins can hold what they would get."""
        home, there = self._bin_of[item], self._bin_of[other]
        used, change = self._grid.used, self._items.loads[item] - self._items.loads[other]
        if used[there] + change > self._capacity or used[home] - change > self._capacity:
            return False
        return self._items.costs[item] - self._items.costs[other] <= self._slack(there)

    def _slack(self, b: int) -> int:
        """How much dearer bin `b` may become, as far as its ceiling and its room tell."""
        if self._ceilings is None:
            return UNLIMITED
        room = self._capacity - self._grid.used[b]
        return min(self._ceilings[b] - self._grid.costs[b], room * self._densest)

    def _first_below(self, cost: int) -> int:
        """The first item that costs less than `cost`."""
        return bisect_left(self._items.costs, 1 - cost, self._oversize, key=neg)

    def _most_room(self, group: int) -> tuple[int, int]:
        """The bin of a group that takes a single item most easily, after how much dearer it may become."""
        if group not in self._roomiest:
            used = self._grid.used
            room = self._slack if self._ceilings is not None else lambda b: -used[b]
            roomy = max(self._groups[group], key=room)
            self._roomiest[group] = self._slack(roomy), roomy
        return self._roomiest[group]

    def _members_of(self, group: int) -> list[int]:
        """The items of a group, dearest first; looked up when the group first takes part."""
        if group not in self._members:
            members: list[int] = []
            for b in self._groups[group]:
                members += self._grid.bins[b]
                for item in self._grid.bins[b]:
                    self._bin_of[item] = b
            self._members[group] = sorted(members)
        return self._members[group]

    def _apply(self, heavy: int, light: int, transfer: Transfer) -> None:
        given, others, there = transfer
        home = self._bin_of[given[0]]
        cost = sum([self._carry(item, heavy, light, there) for item in given])
        cost -= sum([self._carry(other, light, heavy, home) for other in others])
        self._costs[heavy] -= cost
        self._costs[light] += cost
        for changed in (heavy, light):
            self._roomiest.pop(changed, None)
        for b in (home, there):
            self._sets.pop(b, None)

    def _carry(self, item: int, source: int, goal: int, there: int) -> int:
        """Carry one item into bin `there` of group `goal`; what it costs."""
        grid, load, cost = self._grid, self._items.loads[item], self._items.costs[item]
        home = self._bin_of[item]
        grid.bins[home].remove(item)
        grid.bins[there].append(item)
        grid.used[home] -= load
        grid.used[there] += load
        grid.costs[home] -= cost
        grid.costs[there] += cost
        self._bin_of[item] = there
        givers = self._members[source]
        del givers[bisect_left(givers, item)]
        insort(self._members[goal], item)
        return cost
