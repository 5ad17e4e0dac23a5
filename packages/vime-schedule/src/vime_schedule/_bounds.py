"""What no plan can beat."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate


def step_bound(costs: Sequence[int], dp: int) -> float:
    """The least cost of the dearest rank; `costs` are in falling order.

    Of the k * dp + 1 dearest samples some rank has k + 1, which cost at least as much as the k + 1 cheapest of them.
    """
    best = max(sum(costs) / dp, costs[0])
    below = [0, *accumulate(costs)]
    for k in range(1, (len(costs) - 1) // dp + 1):
        best = max(best, below[k * dp + 1] - below[k * dp - k])
    return best


def makespan_bound(busiest: float, cheapest: float, *, pp: int, vpp: int, backward_ratio: float) -> float:
    """The least time of a pipeline whose slowest rank runs `busiest` forward cost and no micro-batch below `cheapest`.

    The last stage works through its share; it cannot start before the first micro-batch has come through the other
    stages, and after its last backward that one has to go back through them.
    """
    edges = (pp - 1) / (pp * vpp) * cheapest
    return (1.0 + backward_ratio) * (busiest / pp + edges)
