"""`vime-schedule what-if`: the same samples over many layouts and budgets."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import product
from math import fsum

from vime_schedule._batching import Batching, TokenBudget
from vime_schedule._cli._arguments import (
    LAYOUT_OPTIONS,
    PlanRequest,
    add_batching_arguments,
    add_json_argument,
    add_layout_arguments,
    add_length_arguments,
    add_objective_argument,
    add_step_arguments,
    batching_from,
    request_from,
)
from vime_schedule._cli._console import print_lines, terminal_width
from vime_schedule._cli._figures import percent
from vime_schedule._cli._numbers import whole_numbers
from vime_schedule._cli._prose import paragraph
from vime_schedule._cli._tables import Column, table_lines
from vime_schedule._errors import ScheduleError
from vime_schedule._layout import ParallelLayout
from vime_schedule._render._text import Line

NAME = "what-if"
SUMMARY = "sweep dp, cp, tp, pp, vpp and the budget over the same samples"
DESCRIPTION = """\
Plan the same samples for every combination of the given layouts and budgets,
fastest first. Time is the simulated pipeline makespan divided by cp * tp, which
assumes that these scale perfectly; efficiency is useful over paid GPU time."""
EXAMPLES = """\
examples:
  vime-schedule what-if lengths.csv --dp 4,8,16 --max-tokens-per-gpu 8192,16384
  vime-schedule what-if lengths.csv --dp 8,16 --pp 1,2,4 --vpp 1,2 \\
      --max-tokens-per-gpu 16384 --objective pipeline --json
"""
FORWARD_AND_BACKWARD = 3.0  # a report takes backward as twice forward


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one combination costs; `failed` says why it cannot run."""

    sizes: dict[str, int]
    gpus: int
    micro_batches: int = 0
    time: float = 0.0
    efficiency: float = 0.0
    imbalance: float = 0.0
    bubble_fraction: float = 0.0
    fill_fraction: float = 0.0
    failed: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_length_arguments(parser)
    add_objective_argument(parser)
    add_json_argument(parser)
    add_layout_arguments(parser, _sweep)
    add_batching_arguments(parser, _sweep)
    add_step_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    """Plan every combination and print."""
    request = request_from(arguments)
    outcomes = [
        _outcome(request, sizes, arguments.group, batching, arguments.objective)
        for sizes, batching in _combinations(arguments)
    ]
    outcomes.sort(key=lambda outcome: (outcome.failed is not None, outcome.time, outcome.gpus))
    if arguments.json:
        print(json.dumps([_as_dict(outcome) for outcome in outcomes]))
        return
    print_lines(_lines(outcomes, terminal_width()))


def _sweep(text: str) -> list[int]:
    """Parse one swept option."""
    try:
        return whole_numbers(text, "value")
    except ScheduleError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _combinations(arguments: argparse.Namespace) -> Iterator[tuple[dict[str, int], Batching]]:
    """Yield every layout with every budget."""
    budgets = arguments.max_tokens_per_gpu or [None]
    batchings = [batching_from(arguments, budget) for budget in budgets]
    for values in product(*(getattr(arguments, name) for name in LAYOUT_OPTIONS)):
        for batching in batchings:
            yield dict(zip(LAYOUT_OPTIONS, values, strict=True)), batching


def _outcome(
    request: PlanRequest, sizes: dict[str, int], group: int | None, batching: Batching, objective: str
) -> Outcome:
    """Plan one combination; what cannot run is an outcome too."""
    budget = batching.max_tokens_per_gpu if isinstance(batching, TokenBudget) else batching.micro_batch_size
    gpus = sizes["dp"] * sizes["cp"] * sizes["tp"] * sizes["pp"]
    try:
        layout = ParallelLayout(**sizes, microbatch_group_size_per_vp_stage=group if sizes["vpp"] > 1 else None)
        schedule = request.plan(layout=layout, batching=batching, objective=objective)
    except ScheduleError as error:
        return Outcome(sizes=sizes | {"budget": budget}, gpus=gpus, failed=str(error))
    total = schedule.report().total
    time = total.makespan / (layout.cp * layout.tp)
    work = FORWARD_AND_BACKWARD * fsum(cost for step in schedule.steps for rank in step.costs for cost in rank)
    return Outcome(
        sizes=sizes | {"budget": budget},
        gpus=gpus,
        micro_batches=total.micro_batches,
        time=time,
        efficiency=work / (time * gpus),
        imbalance=total.imbalance,
        bubble_fraction=total.bubble_fraction,
        fill_fraction=total.fill_fraction,
    )


def _as_dict(outcome: Outcome) -> dict[str, object]:
    """Return an outcome as a flat object."""
    fields = asdict(outcome)
    del fields["sizes"]
    return {**outcome.sizes, **fields}


def _lines(outcomes: list[Outcome], width: int) -> list[Line]:
    """Return a row per combination that runs, and a sentence per one that does not."""
    ran = [outcome for outcome in outcomes if outcome.failed is None]
    swept = [name for name in (*LAYOUT_OPTIONS, "budget") if len({outcome.sizes[name] for outcome in outcomes}) > 1]
    figures: dict[Column, Callable[[Outcome], str]] = {
        Column("GPUs"): lambda outcome: str(outcome.gpus),
        Column("M", 1): lambda outcome: str(outcome.micro_batches),
        Column("time"): lambda outcome: f"{outcome.time / ran[0].time:.3f}",
        Column("efficiency"): lambda outcome: percent(outcome.efficiency),
        Column("imbalance", 2): lambda outcome: f"{outcome.imbalance:.4f}",
        Column("bubble", 1): lambda outcome: percent(outcome.bubble_fraction),
        Column("fill", 3): lambda outcome: percent(outcome.fill_fraction),
    }
    columns = [*(Column(name) for name in swept), *figures]
    rows = [
        [*(str(outcome.sizes[name]) for name in swept), *(figure(outcome) for figure in figures.values())]
        for outcome in ran
    ]
    lines = table_lines(columns, rows, width) if ran else []
    if ran:
        lines += paragraph("time: over the fastest. efficiency: useful over paid GPU time.", width)
    failures: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.failed is not None:
            sizes = " ".join(f"{name}={outcome.sizes[name]}" for name in swept)
            failures.setdefault(outcome.failed, []).append(sizes)
    for reason, combinations in failures.items():
        lines += [[], *paragraph(f"cannot run: {reason}", width), *paragraph("; ".join(combinations), width)]
    return lines
