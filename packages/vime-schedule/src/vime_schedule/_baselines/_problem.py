"""One step as every baseline sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from vime_schedule._layout import ParallelLayout

Ranks: TypeAlias = list[list[list[int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProblem:
    """Samples of one step to pack and deal.

    Args:
        positions: samples in arrival order.
        shares: for every sample of the batch, what it adds to a micro-batch, in the unit of `capacity`.
        costs: for every sample of the batch, its cost.
        capacity: the most that shares of one micro-batch may add up to.
        layout: the ranks.
    """

    positions: Sequence[int]
    shares: Sequence[int]
    costs: Sequence[float]
    capacity: int
    layout: ParallelLayout
