"""The least time of a pipeline."""

from __future__ import annotations


def makespan_bound(busiest: float, cheapest: float, *, pp: int, vpp: int, backward_ratio: float) -> float:
    """The least time of a pipeline whose slowest rank runs `busiest` forward cost and no micro-batch below `cheapest`.

    The last stage works through its share of all micro-batches. It cannot start before the first one has come through
    the stages before it, and after its last backward that one has to go back through them.

    >>> makespan_bound(4.0, 1.0, pp=2, vpp=1, backward_ratio=2.0)   # four equal micro-batches: exact
    7.5
    """
    edges = (pp - 1) / (pp * vpp) * cheapest
    return (1.0 + backward_ratio) * (busiest / pp + edges)
