"""Run one step of a pipeline on paper: when every stage runs every forward and backward, and how long it idles.

Laws
- A stage runs its operations one at a time, in the order of `_order`, each as soon as its input has arrived.
- A forward needs the same micro-batch's forward one model chunk earlier; a backward needs its backward one chunk later,
  and on the last chunk its forward. Chunk c of stage s is chunk `c * pp + s` of the model.
- `makespan >= busy(s)` for every stage s, and `bubble_fraction = 1 - mean busy / makespan`, 0 for no work at all.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from itertools import accumulate

from vime_schedule._errors import ScheduleError
from vime_schedule._layout import ParallelLayout
from vime_schedule._pipeline._cost_table import Costs, check_number, cost_table
from vime_schedule._pipeline._order import Operation, stage_order


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineSlot:
    """One operation of one stage, from `start` to `end` in cost units."""

    operation: Operation
    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTimeline:
    """What every stage of one pipeline does during one step.

    Args:
        layout: the pipeline that was simulated.
        stages: per stage its operations in the order in which they ran.
    """

    layout: ParallelLayout
    stages: tuple[tuple[TimelineSlot, ...], ...]

    @property
    def makespan(self) -> float:
        """Time from the start of the first operation to the end of the last, in cost units."""
        return max(slots[-1].end for slots in self.stages)

    @property
    def bubble_fraction(self) -> float:
        """Share of the makespan an average stage idles, 0 to 1."""
        return 1.0 - math.fsum(map(self.busy_fraction, range(len(self.stages)))) / len(self.stages)

    def busy(self, stage: int) -> float:
        """Time that `stage` computes."""
        return math.fsum(slot.end - slot.start for slot in self.stages[stage])

    def busy_fraction(self, stage: int) -> float:
        """Share of the makespan that `stage` computes, 0 to 1; 1 when nothing costs anything."""
        return self.busy(stage) / self.makespan if self.makespan else 1.0

    def peak_in_flight(self, stage: int) -> int:
        """Most (chunk, micro-batch) pairs whose activations `stage` holds at once for backward; 0 in inference."""
        changes = [-1 if slot.operation.backward else 1 for slot in self.stages[stage]]
        return max(accumulate(changes)) if min(changes) < 0 else 0


def simulate(
    costs: Costs,
    *,
    layout: ParallelLayout,
    backward_costs: Costs | None = None,
    backward_ratio: float = 2.0,
    transfer: float = 0.0,
    forward_only: bool = False,
) -> PipelineTimeline:
    """Simulate 1F1B, or interleaved 1F1B when `layout.vpp` is above 1, on one data-parallel rank.

    Args:
        costs: forward cost of every micro-batch through the whole model, spread evenly over the chunks; or a table
            `[pp * vpp chunks][micro-batches]` when chunks differ (an embedding, a head, uneven layers).
        layout: its `pp`, `vpp` and `microbatch_group_size_per_vp_stage` are read.
        backward_costs: the same for backward; None means `backward_ratio` times forward.
        backward_ratio: backward over forward cost; 2 without recomputation, 3 with.
        transfer: time from the end of an operation until its result is on the next stage.
        forward_only: simulate an inference pass, such as the one for log-probs.

    Raises:
        ScheduleError: a cost is not a finite number of at least 0, a table has the wrong shape, there is no
            micro-batch, or the interleaved schedule cannot run that many.

    >>> timeline = simulate([1.0, 1.0, 1.0, 1.0], layout=ParallelLayout(pp=2))
    >>> timeline.makespan, timeline.bubble_fraction
    (7.5, 0.19999999999999996)
    """
    chunks = layout.pp * layout.vpp
    forward = cost_table("costs", costs, chunks)
    count = len(forward[0])
    if backward_costs is None:
        ratio = check_number("backward_ratio", backward_ratio)
        backward = [[cost * ratio for cost in row] for row in forward]
    else:
        backward = cost_table("backward_costs", backward_costs, chunks, count)
    check_number("transfer", transfer)
    if not layout.is_legal(count):
        raise ScheduleError(
            f"simulate: {count} micro-batches are not legal for {layout}: the next legal number is "
            f"{layout.next_legal(count)}, plan that many."
        )
    orders = [
        stage_order(stage, count=count, pp=layout.pp, vpp=layout.vpp, group=layout.group, forward_only=forward_only)
        for stage in range(layout.pp)
    ]
    return PipelineTimeline(layout=layout, stages=_run(orders, forward, backward, transfer))


def _run(
    orders: list[list[Operation]], forward: list[list[float]], backward: list[list[float]], transfer: float
) -> tuple[tuple[TimelineSlot, ...], ...]:
    """Advance every stage as far as its inputs allow, until all are through."""
    pp, last = len(orders), len(forward) - 1
    queues = [deque(order) for order in orders]
    slots: list[list[TimelineSlot]] = [[] for _ in orders]
    ends: dict[tuple[bool, int, int], float] = {}  # (backward, chunk of the model, micro-batch) -> end
    while any(queues):
        for stage, queue in enumerate(queues):
            clock = slots[stage][-1].end if slots[stage] else 0.0
            while queue:
                operation = queue[0]
                chunk = operation.chunk * pp + stage
                ready = _arrival(operation, chunk, last, ends, transfer if pp > 1 else 0.0)
                if ready is None:
                    break
                queue.popleft()
                start = max(clock, ready)
                clock = start + (backward if operation.backward else forward)[chunk][operation.micro_batch]
                ends[operation.backward, chunk, operation.micro_batch] = clock
                slots[stage].append(TimelineSlot(operation=operation, start=start, end=clock))
    return tuple(map(tuple, slots))


def _arrival(
    operation: Operation, chunk: int, last: int, ends: dict[tuple[bool, int, int], float], transfer: float
) -> float | None:
    """Return when the input of an operation is on its stage; None while nobody has computed it."""
    m = operation.micro_batch
    if operation.backward and chunk == last:
        return ends[False, chunk, m]
    if not operation.backward and chunk == 0:
        return 0.0
    end = ends.get((True, chunk + 1, m) if operation.backward else (False, chunk - 1, m))
    return None if end is None else end + transfer
