"""The makespan of one pipeline step, fast enough to sit inside a search over micro-batch orders.

Laws
- The result is the makespan of `simulate` on the same costs, without its timeline (equal stages, no transfer time).
- Linear in the costs: scaling every cost by k scales the makespan by k.
- Never below the time one stage is busy, `(1 + backward_ratio) * sum(costs) / pp`.

Both schedules are swept in rounds. In round k a stage runs forward number `k + warmup` and then backward number k, so a
round needs only what neighbouring stages finished in the round before, and no operation list is ever built:
O(M * vpp * pp) time, and O(pp) memory for 1F1B or O(M * vpp) for the interleaved schedule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from vime_schedule._errors import ScheduleError
from vime_schedule._pipeline._order import chunk_groups


def pipeline_makespan(
    costs: Sequence[float], *, pp: int, vpp: int = 1, group: int | None = None, backward_ratio: float = 2.0
) -> float:
    """Return the time from the first forward to the last backward of one training step on `pp` equal stages.

    Args:
        costs: forward cost of each micro-batch through the whole model, in the order in which they run.
        pp: pipeline stages.
        vpp: model chunks per stage; above 1 the schedule is Megatron's interleaved 1F1B.
        group: consecutive micro-batches a chunk runs before the next chunk
            (`microbatch_group_size_per_vp_stage`); None means `pp`. Only read when `vpp` is above 1.
        backward_ratio: backward cost over forward cost.

    Returns:
        The makespan in the unit of `costs`.

    Raises:
        ScheduleError: the interleaved schedule cannot run this many micro-batches.

    Four equal micro-batches on two stages: (4 + 2 - 1) slots of (1 + 2) half costs.

    >>> pipeline_makespan([1, 1, 1, 1], pp=2)
    7.5
    """
    if pp == 1:
        return math.fsum(costs) * (1.0 + backward_ratio)
    chunk = 1.0 / (pp * vpp)
    forward = [cost * chunk for cost in costs]
    backward = [cost * backward_ratio for cost in forward]
    if vpp == 1:
        return _one_f_one_b(forward, backward, pp)
    return _interleaved(forward, backward, pp, vpp, pp if group is None else group)


def _one_f_one_b(forward: list[float], backward: list[float], pp: int) -> float:
    """Sweep rounds of plain 1F1B; stages are counted from the last one, whose warm-up is 0."""
    count = len(forward)
    done = [0.0] * pp  # done[r]: when stage r (from the end) is free
    sent = [0.0] * (pp + 1)  # sent[r]: when its latest forward left; sent[pp] is the data loader, always ready
    arrivals = [0.0] * count
    for r in range(pp - 1, 0, -1):  # warm-up: stage r from the end runs r forwards alone
        clock = 0.0
        for m in range(min(r, count)):
            clock = max(clock, arrivals[m]) + forward[m]
            arrivals[m] = clock
        done[r] = sent[r] = clock
    stages = range(pp)
    full = max(count - pp + 1, 0)
    for k in range(full):
        cost, upstream = backward[k], 0.0
        for r in stages:
            free, ready = done[r], sent[r + 1]
            free = (free if free > ready else ready) + forward[k + r]
            sent[r] = free
            done[r] = upstream = (free if free > upstream else upstream) + cost
    for k in range(full, count):
        upstream = 0.0
        for r in stages:
            free = done[r]
            if k + r < count:
                free = sent[r] = max(free, sent[r + 1]) + forward[k + r]
            done[r] = upstream = max(free, upstream) + backward[k]
    return max(done)


def _interleaved(forward: list[float], backward: list[float], pp: int, vpp: int, group: int) -> float:
    """Sweep interleaved 1F1B; at tick t stage s is in round t + s, so every input is from an earlier tick."""
    count = len(forward)
    _check_interleaving(count, pp, group)
    order, distance, first = _chunk_order(count, vpp, group)
    total = len(order)
    run_forward = [forward[m] for m in order]
    run_backward = [backward[m] for m in order]
    done = [0.0] * pp  # when each stage is free
    sent = [0.0] * pp  # when its latest forward left
    left = [0.0] * total  # when the last stage finished each forward: input of the next chunk on stage 0
    returned = [0.0] * total  # when stage 0 finished each backward: input of the previous chunk on the last stage
    last = pp - 1
    lead = 2 * last + (vpp - 1) * group
    for tick in range(-lead, total):
        top, tail = tick + lead, tick + last  # the forward of stage 0 and the backward of the last stage
        ready = left[top - distance[top]] if top < total and not first[top] else 0.0
        closing = returned[tail - distance[tail]] if 0 <= tail < total and not first[tail] else 0.0
        for s in range(pp):
            clock, position, k = done[s], top - s, tick + s
            arrived, ready = ready, sent[s]
            if 0 <= position < total:
                sent[s] = clock = (clock if clock > arrived else arrived) + run_forward[position]
            if 0 <= k < total:
                upstream = done[s + 1] if s < last else closing
                clock = (clock if clock > upstream else upstream) + run_backward[k]
            done[s] = clock
        if 0 <= top - last < total:
            left[top - last] = sent[last]
        if tick >= 0:
            returned[tick] = done[0]
    return max(done)


def _chunk_order(count: int, vpp: int, group: int) -> tuple[list[int], list[int], list[bool]]:
    """Return, per slot of a stage: its micro-batch, its distance to the same one a chunk earlier, whether none is."""
    order: list[int] = []
    distance: list[int] = []
    first: list[bool] = []
    for members in chunk_groups(count, group):
        for chunk in range(vpp):
            order.extend(members)
            distance.extend([len(members)] * len(members))
            first.extend([chunk == 0] * len(members))
    return order, distance, first


def _check_interleaving(count: int, pp: int, group: int) -> None:
    """Refuse what Megatron's interleaved schedule refuses."""
    if not (pp <= group <= count and (count % group == 0 or count % group >= pp)):
        raise ScheduleError(
            f"{count} micro-batches cannot be interleaved over pp={pp} with group={group}: the schedule needs "
            "pp <= group <= M, and M % group either 0 or at least pp; plan another number of micro-batches."
        )
