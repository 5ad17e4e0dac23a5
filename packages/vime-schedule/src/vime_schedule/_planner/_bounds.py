"""What no plan of the same samples can beat, whatever it does.

Laws
- Every legal plan costs at least its bounds; the tests hold them against exhaustive search.
- No assumption is made on how a cost depends on length.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain

from vime_schedule._planner._items import Items


def step_bound(classes: Sequence[Items], dp: int, num_rows: int) -> float:
    """The least cost of the dearest of `dp` ranks, each with samples in `num_rows` micro-batches.

    Of the k * dp + 1 dearest samples some rank has k + 1, which cost at least as much as the k + 1 cheapest of them.
    The rank of the dearest sample has at least one more in each other micro-batch.
    """
    below = cost_below(classes)
    others = below[-1] - below[-num_rows]
    return max(below[-1] / dp, pigeonhole(below, dp), below[1] + others)


def cost_below(classes: Sequence[Items]) -> Sequence[int]:
    """What the k dearest samples cost, for every k."""
    if len(classes) == 1 and classes[0].is_monotone:
        return classes[0].cost_below
    falling = sorted(chain.from_iterable(items.costs for items in classes), reverse=True)
    return list(accumulate(falling, initial=0))


def pigeonhole(below: Sequence[int], holes: int) -> int:
    """The least cost of the dearest of `holes` sets that hold all samples, the k dearest of which cost `below[k]`."""
    return max(below[k * holes + 1] - below[k * holes - k] for k in range((len(below) - 2) // holes + 1))
