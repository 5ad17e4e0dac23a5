"""Which constraint shaped one micro-batch of a finished plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from vime_schedule._schedule import Schedule

MEANINGS = {
    "filler": "no sample; it makes the number of micro-batches legal",
    "oversize": "one sample above the budget, alone",
    "full": "not even the shortest sample of the step would still fit",
    "dear": "one sample that costs as much as an average micro-batch",
    "balanced": "room left, since samples are spread so that micro-batches cost the same",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapedMicroBatch:
    """One micro-batch, what it holds, and what bounded it."""

    rank: int
    index: int
    samples: int
    tokens_per_gpu: int
    cost: float
    shaped_by: str


def shaped_micro_batches(schedule: Schedule, step_number: int, ranks: Sequence[int]) -> list[ShapedMicroBatch]:
    """Say for every micro-batch of `ranks` in one step what bounded it, under the names of `MEANINGS`."""
    step, cp = schedule.steps[step_number], schedule.layout.cp
    lengths = schedule.total_lengths
    shares = schedule.batching.shares(lengths, cp)
    capacity = schedule.batching.capacity(cp)
    shortest = min(shares[p] for rank in step.micro_batches for members in rank for p in members)
    mean = fsum(step.rank_costs) / (schedule.layout.dp * step.num_micro_batches)
    shaped = []
    for rank in ranks:
        for index, (members, cost) in enumerate(zip(step.micro_batches[rank], step.costs[rank], strict=True)):
            filled = sum(shares[p] for p in members)
            if not members:
                kind = "filler"
            elif filled > capacity:
                kind = "oversize"
            elif filled + shortest > capacity:
                kind = "full"
            else:
                kind = "dear" if len(members) == 1 and cost >= mean else "balanced"
            tokens = schedule.batching.gpu_tokens([lengths[p] for p in members], cp)
            shaped.append(
                ShapedMicroBatch(
                    rank=rank, index=index, samples=len(members), tokens_per_gpu=tokens, cost=cost, shaped_by=kind
                )
            )
    return shaped


def why_not(schedule: Schedule, step_number: int, count: int) -> str:
    """Say why a step does not have `count` micro-batches per rank."""
    step, layout = schedule.steps[step_number], schedule.layout
    if count == step.num_micro_batches:
        return f"it has M = {count}."
    broken = next((reason for reason in step.reasons if reason.micro_batches > count), None)
    if broken is not None and broken.rule == "cheaper":
        return f"M = {count} would do, but {broken.why}."
    if broken is not None:
        return f"M = {count} is too few, since {broken.rule} needs {broken.micro_batches}: {broken.why}."
    if not layout.is_legal(count):
        return f"M = {count} is not legal for {layout}; the next legal number is {layout.next_legal(count)}."
    return f"M = {count} is possible, but M = {step.num_micro_batches} serves and costs no more."
