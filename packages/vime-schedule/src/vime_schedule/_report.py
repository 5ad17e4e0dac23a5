"""Every figure of a plan.

Laws
- S7 Each figure is a function of the plan, which carries the lengths and the costs.
- `imbalance` is max rank cost over mean rank cost; `lockstep` is the sum over m of the slowest rank over the same mean.
  1 is perfect for both, and lockstep >= imbalance >= 1.
- A gap is value over lower bound, less 1: 0 means that no plan is better.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from math import fsum
from typing import TYPE_CHECKING

from vime_schedule._batching import TokenBudget
from vime_schedule._makespan_bound import makespan_bound
from vime_schedule._pipeline import pipeline_makespan

if TYPE_CHECKING:
    from vime_schedule._schedule import Schedule
    from vime_schedule._step import StepSchedule


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """The figures of one step, or of the whole plan where costs, makespans and counts are added over the steps.

    Args:
        rollouts: rollouts trained.
        samples: samples trained.
        micro_batches: micro-batches per rank.
        micro_batches_bound: the fewest micro-batches per rank that any plan needs.
        imbalance: max rank cost / mean rank cost.
        imbalance_bound: the least imbalance of any plan.
        imbalance_gap: imbalance / imbalance_bound - 1.
        lockstep: sum over m of the dearest m-th micro-batch / mean rank cost.
        lockstep_bound: the least lockstep of any plan with as many micro-batches.
        lockstep_gap: lockstep / lockstep_bound - 1.
        makespan: simulated time of the pipeline's slowest rank, in cost units; forward and backward.
        makespan_bound: the least makespan of any plan with as many micro-batches.
        makespan_gap: makespan / makespan_bound - 1.
        bubble_fraction: part of the makespan in which an average stage of an average rank idles.
        fill_fraction: part of the budget that the micro-batches use; an oversize one uses all of it, fillers do not
            count.
        padding_fraction: part of the tokens held on the GPUs that is padding.
        fillers: micro-batches without a sample.
    """

    rollouts: int
    samples: int
    micro_batches: int
    micro_batches_bound: int
    imbalance: float
    imbalance_bound: float
    imbalance_gap: float
    lockstep: float
    lockstep_bound: float
    lockstep_gap: float
    makespan: float
    makespan_bound: float
    makespan_gap: float
    bubble_fraction: float
    fill_fraction: float
    padding_fraction: float
    fillers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleReport:
    """The figures of a plan.

    Args:
        steps: one report per optimizer step.
        total: the same figures over the whole plan.
        dropped: samples that train in no step.
        oversize: samples that exceed the budget alone.
    """

    steps: tuple[StepReport, ...]
    total: StepReport
    dropped: int
    oversize: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sums:
    """What adds up over steps; every figure is a ratio of these."""

    rollouts: int
    samples: int
    micro_batches: int
    micro_batches_bound: int
    mean: float
    slowest: float
    slowest_bound: float
    rows: float
    rows_bound: float
    makespan: float
    makespan_bound: float
    busy: float
    held: int
    room: int
    tokens: int
    stream: int
    fillers: int

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(**{name: getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__})


def report_schedule(schedule: Schedule, *, backward_ratio: float) -> ScheduleReport:
    """The report of a plan; `backward_ratio` is backward over forward time of a stage."""
    sums = [_sum_step(schedule, step, backward_ratio) for step in schedule.steps]
    total = sums[0]
    for more in sums[1:]:
        total = total + more
    return ScheduleReport(
        steps=tuple(map(_figures, sums)),
        total=_figures(total),
        dropped=len(schedule.dropped),
        oversize=len(schedule.oversize),
    )


def _sum_step(schedule: Schedule, step: StepSchedule, backward_ratio: float) -> _Sums:
    layout, batching, lengths = schedule.layout, schedule.batching, schedule.total_lengths
    bins = [[lengths[p] for p in micro_batch] for micro_batch in chain.from_iterable(step.micro_batches) if micro_batch]
    mean = fsum(chain.from_iterable(step.costs)) / layout.dp
    held = [batching.gpu_tokens(lengths_of_bin, layout.cp) for lengths_of_bin in bins]
    if isinstance(batching, TokenBudget):
        budget = batching.max_tokens_per_gpu
        filled, room = sum([min(tokens, budget) for tokens in held]), budget * len(bins)
    else:
        filled, room = sum(map(len, bins)), batching.micro_batch_size * len(bins)
    return _Sums(
        rollouts=step.global_batch_size,
        samples=step.num_samples,
        micro_batches=step.num_micro_batches,
        micro_batches_bound=step.bounds.micro_batches,
        mean=mean,
        slowest=max(step.rank_costs),
        slowest_bound=step.bounds.step,
        rows=fsum(step.row_costs),
        rows_bound=step.bounds.lockstep,
        makespan=max(
            pipeline_makespan(
                costs,
                pp=layout.pp,
                vpp=layout.vpp,
                group=layout.group if layout.vpp > 1 else None,
                backward_ratio=backward_ratio,
            )
            for costs in step.costs
        ),
        makespan_bound=makespan_bound(
            step.bounds.step, step.bounds.cheapest, pp=layout.pp, vpp=layout.vpp, backward_ratio=backward_ratio
        ),
        busy=mean * (1 + backward_ratio) / layout.pp,
        held=filled,
        room=room,
        tokens=sum(map(sum, bins)),
        stream=sum(held) * layout.cp,
        fillers=step.num_fillers,
    )


def _figures(sums: _Sums) -> StepReport:
    return StepReport(
        rollouts=sums.rollouts,
        samples=sums.samples,
        micro_batches=sums.micro_batches,
        micro_batches_bound=sums.micro_batches_bound,
        imbalance=_ratio(sums.slowest, sums.mean),
        imbalance_bound=_ratio(sums.slowest_bound, sums.mean),
        imbalance_gap=_gap(sums.slowest, sums.slowest_bound),
        lockstep=_ratio(sums.rows, sums.mean),
        lockstep_bound=_ratio(sums.rows_bound, sums.mean),
        lockstep_gap=_gap(sums.rows, sums.rows_bound),
        makespan=sums.makespan,
        makespan_bound=sums.makespan_bound,
        makespan_gap=_gap(sums.makespan, sums.makespan_bound),
        bubble_fraction=max(0.0, 1.0 - sums.busy / sums.makespan) if sums.makespan else 0.0,
        fill_fraction=sums.held / sums.room,
        padding_fraction=1.0 - sums.tokens / sums.stream,
        fillers=sums.fillers,
    )


def _ratio(value: float, mean: float) -> float:
    return max(1.0, value / mean) if mean else 1.0  # rounding may leave it just below


def _gap(value: float, bound: float) -> float:
    return max(0.0, value / bound - 1.0) if bound else 0.0
