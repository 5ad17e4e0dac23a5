"""Choose which of many ranks to draw."""

from __future__ import annotations

from collections.abc import Sequence


def pick_ranks(costs: Sequence[float], limit: int) -> list[int]:
    """Return at most `limit` ranks in rank order: the dearest, the cheapest, and evenly spread ones between by cost.

    >>> pick_ranks([5.0, 9.0, 7.0, 1.0, 3.0], 3)
    [0, 1, 3]
    """
    if len(costs) <= limit:
        return list(range(len(costs)))
    by_cost = sorted(range(len(costs)), key=lambda rank: (-costs[rank], rank))
    if limit == 1:
        return by_cost[:1]
    return sorted({by_cost[index * (len(costs) - 1) // (limit - 1)] for index in range(limit)})
