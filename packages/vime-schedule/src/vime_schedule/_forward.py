"""A second plan for passes without gradients, over the samples that each rank already holds.

Log-probs of a policy or a reference need no activations for backward, so they take larger micro-batches than training.

Laws
- Every rank runs the samples of its training partition, once, and no others.
- All ranks run the same, legal number of micro-batches; none exceeds the budget of this pass but one oversize sample
  alone.
- `outputs[inverse[i]]` is the result of `partition[i]`, where `outputs` is in the order in which the pass ran.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from math import fsum

from vime_schedule._batching import Batching, FixedSize
from vime_schedule._costs import token_cost
from vime_schedule._errors import ScheduleError
from vime_schedule._layout import ParallelLayout
from vime_schedule._planner._items import Items, split_by_signature
from vime_schedule._planner._legal import pack_class
from vime_schedule._planner._problem import Problem
from vime_schedule._samples import evaluate_costs
from vime_schedule._schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardRankSchedule:
    """What one DP rank runs in a forward-only pass.

    Args:
        partition: the rank's samples as in its `RankSchedule`, by position.
        micro_batch_indices: indices into `partition` for every micro-batch; `()` is a filler.
        num_microbatches: micro-batches of the pass, the same on every rank.
        inverse: where in the concatenated outputs the result of every sample of `partition` is.
    """

    partition: tuple[int, ...]
    micro_batch_indices: tuple[tuple[int, ...], ...]
    num_microbatches: int
    inverse: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardSchedule:
    """A plan for a pass without gradients.

    Args:
        layout: the ranks it was made for.
        batching: the bound on each micro-batch of the pass.
        ranks: what each DP rank runs.
    """

    layout: ParallelLayout
    batching: Batching
    ranks: tuple[ForwardRankSchedule, ...]

    def for_rank(self, rank: int) -> ForwardRankSchedule:
        """The part of one DP rank.

        Raises:
            ScheduleError: if `rank` is not in `range(layout.dp)`.
        """
        if not 0 <= rank < self.layout.dp:
            raise ScheduleError(f"rank {rank} is not a data-parallel rank: give one of 0..{self.layout.dp - 1}.")
        return self.ranks[rank]


def build_forward_schedule(
    schedule: Schedule, *, batching: Batching, cost: Callable[[int], float] = token_cost
) -> ForwardSchedule:
    """Pack what each rank holds under `schedule` anew, for a pass without gradients.

    Ranks with fewer samples than the others need micro-batches run fillers.

    Args:
        schedule: the training plan that placed the samples.
        batching: the bound on each micro-batch of this pass, usually larger than in training.
        cost: cost of a sample by its length; it only orders and levels the micro-batches.

    >>> from vime_schedule import ParallelLayout, TokenBudget, build_dp_schedule
    >>> training = build_dp_schedule(
    ...     [7, 3, 8, 2, 5, 5, 9, 1],
    ...     layout=ParallelLayout(dp=2),
    ...     batching=TokenBudget(max_tokens_per_gpu=10),
    ...     global_batch_size=4,
    ... )
    >>> forward = build_forward_schedule(training, batching=TokenBudget(max_tokens_per_gpu=20))
    >>> forward.for_rank(0).num_microbatches, training.for_rank(0).num_microbatches
    (1, (1, 1))
    """
    layout, lengths = schedule.layout, schedule.total_lengths
    problem = Problem(
        everyone=range(len(lengths)),
        shares=batching.shares(lengths, layout.cp),
        costs=evaluate_costs(cost, lengths),
        signatures=None,
        capacity=batching.capacity(layout.cp),
        unit="samples" if isinstance(batching, FixedSize) else "tokens",
        layout=ParallelLayout(),
        objective="lockstep",
        fills=True,
        longest_first=True,
    )
    partitions = [schedule.for_rank(rank).partition for rank in range(layout.dp)]
    totals = [fsum(map(problem.costs.__getitem__, partition)) for partition in partitions]
    ranks = [
        split_by_signature(problem, partition, total)[0] if partition else None
        for partition, total in zip(partitions, totals, strict=True)
    ]
    count, packed = _smallest_count(problem, ranks, layout)
    return ForwardSchedule(
        layout=layout,
        batching=batching,
        ranks=tuple(
            _rank_schedule(partition, micro_batches, count)
            for partition, micro_batches in zip(partitions, packed, strict=True)
        ),
    )


def _smallest_count(
    problem: Problem, ranks: Sequence[Items | None], layout: ParallelLayout
) -> tuple[int, list[list[list[int]]]]:
    """The fewest legal micro-batches that hold every rank, and what each holds, dearest first."""
    held = [items for items in ranks if items is not None]
    count = layout.next_legal(max(-(-sum(items.loads) // problem.capacity) for items in held))
    while True:
        packed = [[] if items is None else _pack_rank(problem, items, count) for items in ranks]
        if None not in packed:
            return count, [micro_batches for micro_batches in packed if micro_batches is not None]
        count = layout.next_legal(count + 1)


def _pack_rank(problem: Problem, items: Items, count: int) -> list[list[int]] | None:
    """The micro-batches of one rank as positions, dearest first; None if `count` cannot hold them."""
    packed = pack_class(problem, items, count)
    if packed is None:
        return None
    bins = packed.grid.renamed(items.positions).bins
    return [bins[b] for b in sorted(range(count), key=packed.grid.costs.__getitem__, reverse=True)]


def _rank_schedule(partition: Sequence[int], micro_batches: Sequence[Sequence[int]], count: int) -> ForwardRankSchedule:
    place = {position: index for index, position in enumerate(partition)}
    indices = tuple(tuple(sorted(place[position] for position in held)) for held in micro_batches)
    indices += ((),) * (count - len(indices))
    inverse = [0] * len(partition)
    for output, index in enumerate(chain.from_iterable(indices)):
        inverse[index] = output
    return ForwardRankSchedule(
        partition=tuple(partition), micro_batch_indices=indices, num_microbatches=count, inverse=tuple(inverse)
    )
