"""One optimizer step of a plan.

Laws
- All ranks run the same number of micro-batches.
- An empty micro-batch `()` is a filler: it costs nothing, trains nothing, and exists only to make the count legal.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBounds:
    """What no plan of the same samples can beat, whatever it does.

    Args:
        micro_batches: the fewest micro-batches per rank.
        step: the least cost of the dearest rank.
        lockstep: the least sum over m of the dearest m-th micro-batch of all ranks, at the plan's number of
            micro-batches per rank.
        cheapest: the least cost of any one micro-batch: that of the cheapest sample, or 0 with fillers.
    """

    micro_batches: int
    step: float
    lockstep: float
    cheapest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One constraint that raised the number of micro-batches per rank, and to what.

    Args:
        rule: "tokens" or "samples" (the budget), "dp" (equal counts), "large" (samples that cannot share),
            "signature", "vpp" (legality), "packing" (no packing found at the count before), or
            "cheaper" (a larger count pays).
        micro_batches: micro-batches per rank once this rule is served.
        why: the rule with its numbers, as a sentence.
    """

    rule: str
    micro_batches: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSchedule:
    """Which samples run where in one optimizer step.

    Args:
        micro_batches: `micro_batches[r][m]` holds the sample positions of micro-batch m on DP rank r; `()` is a filler.
        costs: `costs[r][m]` is the cost of that micro-batch, in the unit of the cost model.
        global_batch_size: rollouts in this step.
        bounds: what no plan can beat.
        reasons: why there are this many micro-batches, in the order in which the constraints raised the count.
    """

    micro_batches: tuple[tuple[tuple[int, ...], ...], ...]
    costs: tuple[tuple[float, ...], ...]
    global_batch_size: int
    bounds: StepBounds
    reasons: tuple[Reason, ...]

    @property
    def num_micro_batches(self) -> int:
        """Micro-batches per rank, the same on every rank."""
        return len(self.micro_batches[0])

    @property
    def num_samples(self) -> int:
        """Samples trained in this step."""
        return sum(len(micro_batch) for rank in self.micro_batches for micro_batch in rank)

    @property
    def num_fillers(self) -> int:
        """Micro-batches of the step that hold no sample."""
        return sum(not micro_batch for rank in self.micro_batches for micro_batch in rank)

    @property
    def rank_costs(self) -> tuple[float, ...]:
        """Cost of each DP rank over the step."""
        return tuple(fsum(rank) for rank in self.costs)

    @property
    def row_costs(self) -> tuple[float, ...]:
        """Cost of the dearest m-th micro-batch over the ranks, for every m."""
        return tuple(map(max, zip(*self.costs, strict=True)))
