"""What is the same for every step of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vime_schedule._layout import ParallelLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Samples by position, the ranks they are planned for, and the policies.

    Args:
        everyone: the position of each sample, 0, 1, 2, ...
        shares: what each sample adds to its micro-batch.
        costs: the cost of each sample.
        signatures: the signature number of each sample; None where all are alike.
        capacity: the most that the shares of a micro-batch may add up to.
        unit: what shares count, "tokens" or "samples".
        layout: the ranks.
        objective: what to minimise.
        fills: whether fillers may make up for missing samples.
        longest_first: whether rows run from the dearest to the cheapest, whatever the pipeline would like.
    """

    everyone: Sequence[int]
    shares: Sequence[int]
    costs: Sequence[float]
    signatures: Sequence[int] | None
    capacity: int
    unit: str
    layout: ParallelLayout
    objective: str
    fills: bool
    longest_first: bool

    @property
    def even_sizes(self) -> bool:
        """Whether micro-batches are bounded by samples, which are then spread evenly."""
        return self.unit == "samples"
