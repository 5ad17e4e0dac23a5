"""Plan the micro-batches of a batch of rollouts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from heapq import heapify, heappop, heappush
from math import fsum
from typing import Literal, TypeAlias

from vime_schedule._batching import Batching
from vime_schedule._bounds import step_bound
from vime_schedule._costs import token_cost
from vime_schedule._errors import ScheduleError, check_choice
from vime_schedule._layout import ParallelLayout
from vime_schedule._samples import check_total_lengths, evaluate_costs, number_by_appearance
from vime_schedule._schedule import Schedule
from vime_schedule._step import Reason, StepBounds, StepSchedule
from vime_schedule._steps import Remainder, cut_steps

Objective: TypeAlias = Literal["step", "lockstep", "balanced", "pipeline"]
Oversize: TypeAlias = Literal["alone", "drop", "error"]
Shortage: TypeAlias = Literal["error", "fill"]


def build_dp_schedule(
    total_lengths: Sequence[int],
    *,
    layout: ParallelLayout,
    batching: Batching,
    global_batch_size: int | Sequence[int],
    rollout_ids: Sequence[Hashable] | None = None,
    cost: Callable[[int], float] = token_cost,
    objective: Objective = "balanced",
    remainder: Remainder = "step",
    oversize: Oversize = "alone",
    shortage: Shortage = "error",
) -> Schedule:
    """Plan."""
    check_choice("objective", objective, ("step", "lockstep", "balanced", "pipeline"))
    check_choice("remainder", remainder, ("step", "spread", "drop", "error"))
    check_choice("oversize", oversize, ("alone", "drop", "error"))
    check_choice("shortage", shortage, ("error", "fill"))
    lengths = check_total_lengths(total_lengths)
    ids = range(len(lengths)) if rollout_ids is None else rollout_ids
    rollouts = number_by_appearance("rollout_ids", ids, len(lengths))
    costs = evaluate_costs(cost, lengths)
    shares = batching.shares(lengths, layout.cp)
    capacity = batching.capacity(layout.cp)
    long = [position for position, share in enumerate(shares) if share > capacity]
    if len(long) == len(lengths):
        raise ScheduleError(f"{batching} is below every sample: raise the budget to at least {min(shares)}.")
    if long and oversize == "error":
        raise ScheduleError(f"sample {long[0]} of {lengths[long[0]]} tokens exceeds {batching}: raise the budget.")
    dropped = long if oversize == "drop" else []
    gone = set(dropped)
    kept = [position for position in range(len(lengths)) if position not in gone]
    steps, sizes, left_out = cut_steps(kept, rollouts, global_batch_size, remainder)
    planned = [
        _plan_step(number, positions, shares, costs, size, capacity, layout, shortage)
        for number, (positions, size) in enumerate(zip(steps, sizes, strict=True))
    ]
    out = {*dropped, *left_out}
    return Schedule(
        layout=layout,
        batching=batching,
        objective=objective,
        total_lengths=lengths,
        rollouts=rollouts,
        signatures=None,
        steps=tuple(planned),
        dropped=tuple(sorted(out)),
        oversize=tuple(position for position in long if position not in out),
    )


def _plan_step(number, positions, shares, costs, size, capacity, layout, shortage) -> StepSchedule:  # type: ignore[no-untyped-def]
    order = sorted(positions, key=lambda p: (shares[p], costs[p]), reverse=True)
    dp = layout.dp
    fewest = layout.next_legal(1)
    if len(order) < dp * fewest and shortage == "error":
        raise ScheduleError(
            f"step {number} has {len(order)} samples but needs at least {dp * fewest} ({layout}): add rollouts to the "
            "step, lower `dp`, or choose shortage='fill'."
        )
    count = layout.next_legal(-(-sum(min(shares[p], capacity) for p in order) // (capacity * dp)))
    while True:
        wanted = dp * count
        if wanted > len(order) and shortage == "error":
            raise ScheduleError(f"step {number} has {len(order)} samples but needs at least {wanted} ({layout}).")
        bins = _lpt(order, shares, costs, min(wanted, len(order)), capacity)
        if bins is not None:
            break
        count = layout.next_legal(count + 1)
    bins += [[] for _ in range(wanted - len(bins))]
    bins.sort(key=lambda b: fsum(costs[p] for p in b), reverse=True)
    ranks: list[list[list[int]]] = [[] for _ in range(dp)]
    loads = [0.0] * dp
    for m in range(count):
        lightest = sorted(range(dp), key=loads.__getitem__)
        for rank, micro_batch in zip(lightest, bins[m * dp : (m + 1) * dp], strict=True):
            ranks[rank].append(micro_batch)
            loads[rank] += fsum(costs[p] for p in micro_batch)
    return StepSchedule(
        micro_batches=tuple(tuple(map(tuple, rank)) for rank in ranks),
        costs=tuple(tuple(fsum([costs[p] for p in b]) for b in rank) for rank in ranks),
        global_batch_size=size,
        bounds=StepBounds(
            micro_batches=count,
            step=step_bound(sorted((costs[p] for p in order), reverse=True), dp),  # type: ignore[type-var, arg-type]
            lockstep=fsum(costs[p] for p in order) / dp,
        ),
        reasons=(Reason(rule="tokens", micro_batches=count, why=""),),
    )


def _lpt(order, shares, costs, num_bins, capacity):  # type: ignore[no-untyped-def]
    bins = [[p] for p in order[:num_bins]]
    used = [shares[b[0]] for b in bins]
    heap = [(costs[b[0]], k) for k, b in enumerate(bins)]
    heapify(heap)
    for p in order[num_bins:]:
        full = []
        while heap and used[heap[0][1]] + shares[p] > capacity:
            full.append(heappop(heap))
        if not heap:
            return None
        cost, k = heappop(heap)
        bins[k].append(p)
        used[k] += shares[p]
        for entry in [*full, (cost + costs[p], k)]:
            heappush(heap, entry)
    return bins
