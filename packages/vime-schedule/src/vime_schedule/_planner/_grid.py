"""The micro-batches of a step while they are planned.

Laws
- Micro-batch m of rank r is bin `m * dp + r`: a row is a slice of `dp` bins, a rank every `dp`-th bin.
- `used` and `costs` are the sums of the loads and costs of each bin's items.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vime_schedule._planner._items import Items


@dataclass(slots=True, kw_only=True)
class Grid:
    """Rows of `dp` bins; a bin is a list of items."""

    dp: int
    bins: list[list[int]]
    used: list[int]
    costs: list[int]

    @staticmethod
    def of(bins: Iterable[list[int]], items: Items, dp: int) -> Grid:
        """A grid of these bins, with their sums."""
        kept = list(bins)
        load, cost = items.loads.__getitem__, items.costs.__getitem__
        used = [sum(map(load, held)) for held in kept]
        costs = [sum(map(cost, held)) for held in kept]
        return Grid(dp=dp, bins=kept, used=used, costs=costs)

    @property
    def num_rows(self) -> int:
        """Micro-batches per rank."""
        return len(self.bins) // self.dp

    def rank_costs(self) -> list[int]:
        """The cost of every rank."""
        return [sum(self.costs[rank :: self.dp]) for rank in range(self.dp)]

    def row_maxima(self) -> list[int]:
        """The cost of the dearest bin of every row."""
        return [max(self.costs[start : start + self.dp]) for start in range(0, len(self.costs), self.dp)]

    def lockstep(self) -> int:
        """The time of the step in cost units when ranks meet at every micro-batch."""
        return sum(self.row_maxima())

    def take(self, order: list[int]) -> Grid:
        """The same bins in another order."""
        return Grid(
            dp=self.dp,
            bins=[self.bins[b] for b in order],
            used=[self.used[b] for b in order],
            costs=[self.costs[b] for b in order],
        )

    def copy(self) -> Grid:
        """A grid to try changes on."""
        return Grid(dp=self.dp, bins=list(map(list, self.bins)), used=list(self.used), costs=list(self.costs))

    def renamed(self, names: Sequence[int]) -> Grid:
        """The same grid with every item replaced by its name."""
        bins = [list(map(names.__getitem__, held)) for held in self.bins]
        return Grid(dp=self.dp, bins=bins, used=self.used, costs=self.costs)

    def by_rank(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """The bins of every rank in turn."""
        return tuple(tuple(tuple(sorted(held)) for held in self.bins[rank :: self.dp]) for rank in range(self.dp))

    def padded(self, num_rows: int) -> Grid:
        """The same bins followed by empty ones, `num_rows` rows in all."""
        more = num_rows * self.dp - len(self.bins)
        return Grid(
            dp=self.dp,
            bins=self.bins + [[] for _ in range(more)],
            used=self.used + [0] * more,
            costs=self.costs + [0] * more,
        )

    def __add__(self, other: Grid) -> Grid:
        """The rows of both, these first."""
        return Grid(
            dp=self.dp,
            bins=self.bins + other.bins,
            used=self.used + other.used,
            costs=self.costs + other.costs,
        )
