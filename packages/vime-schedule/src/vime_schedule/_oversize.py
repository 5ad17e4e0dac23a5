"""Samples that exceed the budget alone.

Laws
- S3 Such a sample trains only alone in its micro-batch, and the plan lists it.
- A budget below every sample is refused whatever the policy: it is a wrong number, not a long tail.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from vime_schedule._batching import Batching
from vime_schedule._errors import ScheduleError

Oversize: TypeAlias = Literal["alone", "drop", "error"]


def find_oversize(
    lengths: Sequence[int], shares: Sequence[int], capacity: int, batching: Batching, policy: Oversize
) -> list[int]:
    """Positions of the samples above the capacity."""
    if max(shares) <= capacity:
        return []
    long = [position for position, share in enumerate(shares) if share > capacity]
    if len(long) == len(shares):
        shortest = lengths.index(min(lengths))
        raise ScheduleError(
            f"the budget holds no sample: the shortest, at position {shortest}, has {lengths[shortest]} tokens and "
            f"takes {shares[shortest]} of {capacity} with padding ({batching}): raise the budget to at least "
            f"{shares[shortest]}, better {max(shares)}."
        )
    if policy == "error":
        raise ScheduleError(
            f"{len(long)} samples exceed the budget, first the one at position {long[0]}: {lengths[long[0]]} tokens "
            f"take {shares[long[0]]} of {capacity} with padding ({batching}): raise the budget to {max(shares)}, or "
            "choose oversize='alone' or 'drop'."
        )
    return long
