"""`vime-schedule compare`: every objective beside simple baselines, on the same samples."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from time import perf_counter

from vime_schedule._cli._arguments import (
    OBJECTIVES,
    add_batching_arguments,
    add_json_argument,
    add_layout_arguments,
    add_length_arguments,
    add_step_arguments,
    batching_from,
    layout_from,
    request_from,
)
from vime_schedule._cli._baseline_plans import BASELINES, baseline_plan, over_budget
from vime_schedule._cli._console import print_lines, terminal_width
from vime_schedule._cli._figures import percent
from vime_schedule._cli._prose import paragraph
from vime_schedule._cli._tables import Column, table_lines
from vime_schedule._errors import ScheduleError
from vime_schedule._render._text import Line
from vime_schedule._schedule import Schedule

NAME = "compare"
SUMMARY = "compare objectives and simple baselines on the same samples"
DESCRIPTION = """\
Plan the same samples with every objective and with three baselines (arrival
first-fit, first-fit decreasing, Karmarkar-Karp), and print their figures.
Karmarkar-Karp does not look at the budget: see the column `over`."""
EXAMPLES = """\
examples:
  vime-schedule compare lengths.csv --dp 16 --pp 4 --vpp 2 \\
      --max-tokens-per-gpu 36864 --cost flops:config.json
  vime-schedule compare lengths.jsonl --dp 8 --micro-batch-size 2 --json
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """The figures of one way to plan; `failed` says why there are none."""

    name: str
    milliseconds: float = 0.0
    micro_batches: int = 0
    imbalance: float = 0.0
    lockstep: float = 0.0
    makespan: float = 0.0
    bubble_fraction: float = 0.0
    fill_fraction: float = 0.0
    over_budget: int = 0
    failed: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_length_arguments(parser)
    add_json_argument(parser)
    add_layout_arguments(parser)
    add_batching_arguments(parser)
    add_step_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    """Plan in every way and print."""
    request = request_from(arguments)
    layout, batching = layout_from(arguments), batching_from(arguments, arguments.max_tokens_per_gpu)
    plans = {name: partial(request.plan, layout=layout, batching=batching, objective=name) for name in OBJECTIVES}
    timed = [_timed(name, plan) for name, plan in plans.items()]
    contenders = [*(contender for _, contender in timed), *_baselines(timed[0][0], request.cost)]
    if arguments.json:
        print(json.dumps([asdict(contender) for contender in contenders]))
        return
    print_lines(_lines(contenders, terminal_width()))


def _baselines(reference: Schedule, cost: Callable[[int], float]) -> Iterator[Contender]:
    """Yield every baseline on the steps of `reference`."""
    for name, baseline in BASELINES.items():
        try:
            yield _timed(name, partial(baseline_plan, reference, cost, baseline))[1]
        except ScheduleError as error:
            yield Contender(name=name, failed=str(error))


def _timed(name: str, plan: Callable[[], Schedule]) -> tuple[Schedule, Contender]:
    """Plan against the clock and take the figures."""
    begin = perf_counter()
    schedule = plan()
    milliseconds = 1e3 * (perf_counter() - begin)
    total = schedule.report().total
    return schedule, Contender(
        name=name,
        milliseconds=milliseconds,
        micro_batches=total.micro_batches,
        imbalance=total.imbalance,
        lockstep=total.lockstep,
        makespan=total.makespan,
        bubble_fraction=total.bubble_fraction,
        fill_fraction=total.fill_fraction,
        over_budget=over_budget(schedule),
    )


def _lines(contenders: list[Contender], width: int) -> list[Line]:
    """Return a row per contender, with makespans relative to the best that keeps the budget."""
    ran = [contender for contender in contenders if contender.failed is None]
    best = min(contender.makespan for contender in ran if not contender.over_budget)
    columns = [
        Column("plan", left=True),
        Column("M"),
        Column("imbalance"),
        Column("lockstep"),
        Column("makespan", 1),
        Column("bubble", 3),
        Column("fill", 4),
        Column("over", 1),
        Column("ms", 2),
    ]
    rows = [
        [
            contender.name,
            str(contender.micro_batches),
            f"{contender.imbalance:.4f}",
            f"{contender.lockstep:.4f}",
            f"{contender.makespan / best:.3f}",
            percent(contender.bubble_fraction),
            percent(contender.fill_fraction),
            str(contender.over_budget),
            f"{contender.milliseconds:.1f}",
        ]
        for contender in ran
    ]
    lines = table_lines(columns, rows, width)
    lines += paragraph(
        "makespan: over the best within the budget. over: micro-batches of two or more samples above the budget.", width
    )
    for contender in contenders:
        if contender.failed is not None:
            lines += paragraph(f"{contender.name} cannot: {contender.failed}", width)
    return lines
