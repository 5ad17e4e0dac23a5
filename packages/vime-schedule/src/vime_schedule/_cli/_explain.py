"""`vime-schedule explain`: why a plan has the number of micro-batches it has, and what shaped each."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import asdict

from vime_schedule._cli._arguments import add_json_argument
from vime_schedule._cli._console import print_lines, terminal_width
from vime_schedule._cli._constraints import MEANINGS, ShapedMicroBatch, shaped_micro_batches, why_not
from vime_schedule._cli._files import check_index, read_schedule
from vime_schedule._cli._prose import paragraph
from vime_schedule._cli._tables import Column, table_lines
from vime_schedule._render._text import Line
from vime_schedule._schedule import Schedule

NAME = "explain"
SUMMARY = "why a plan has as many micro-batches as it has"
DESCRIPTION = """\
Say which constraint raised the number of micro-batches per rank, and to what,
and for every micro-batch what bounded it."""
EXAMPLES = """\
examples:
  vime-schedule explain plan.json
  vime-schedule explain plan.json --step 0 --rank 3
  vime-schedule explain plan.json --why-not 10
  vime-schedule explain plan.json --json | jq '.steps[0].reasons'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("plan", metavar="PLAN", help="JSON that `plan -o` wrote; - is stdin")
    parser.add_argument("--step", type=int, metavar="N", help="only this step (default: all)")
    parser.add_argument("--rank", type=int, metavar="N", help="list the micro-batches of this rank (default: slowest)")
    parser.add_argument("--why-not", type=int, metavar="M", help="say why there are not M micro-batches per rank")
    add_json_argument(parser)


def run(arguments: argparse.Namespace) -> None:
    """Read and explain."""
    schedule = read_schedule(arguments.plan)
    steps = range(len(schedule.steps))
    if arguments.step is not None:
        check_index(arguments.step, len(steps), "--step", "step")
        steps = range(arguments.step, arguments.step + 1)
    if arguments.rank is not None:
        check_index(arguments.rank, schedule.layout.dp, "--rank", "rank")
    if arguments.json:
        print(json.dumps({"steps": [_as_dict(schedule, number, arguments.why_not) for number in steps]}))
        return
    width = terminal_width()
    for number in steps:
        if arguments.why_not is not None:
            print_lines(paragraph(f"step {number}: {why_not(schedule, number, arguments.why_not)}", width))
        else:
            print_lines(_step_lines(schedule, number, arguments.rank, width))


def _step_lines(schedule: Schedule, number: int, rank: int | None, width: int) -> list[Line]:
    """Explain one step."""
    step = schedule.steps[number]
    shaped = shaped_micro_batches(schedule, number, range(schedule.layout.dp))
    shown = step.rank_costs.index(max(step.rank_costs)) if rank is None else rank
    lines = paragraph(f"step {number}: M = {step.num_micro_batches} micro-batches per rank", width, "title")
    for reason in step.reasons:
        lines += paragraph(f"{reason.rule} -> {reason.micro_batches}: {reason.why}", width)
    counts = Counter(item.shaped_by for item in shaped)
    lines += [[], *paragraph("micro-batches of all ranks, by what bounded them", width, "title")]
    for kind, meaning in MEANINGS.items():
        if counts[kind]:
            lines += paragraph(f"{counts[kind]} {kind}: {meaning}", width)
    chosen = [item for item in shaped if item.rank == shown]
    lines += [[], [(f"rank {shown}{'' if rank is not None else ' (slowest)'}", "title")]]
    return [*lines, *_micro_batch_table(chosen, width), []]


def _micro_batch_table(items: list[ShapedMicroBatch], width: int) -> list[Line]:
    """List the micro-batches of one rank."""
    columns = [Column("m"), Column("samples"), Column("tokens/GPU"), Column("cost", 1), Column("bounded by", left=True)]
    rows = [
        [str(item.index), str(item.samples), str(item.tokens_per_gpu), f"{item.cost:.6g}", item.shaped_by]
        for item in items
    ]
    return table_lines(columns, rows, width)


def _as_dict(schedule: Schedule, number: int, count: int | None) -> dict[str, object]:
    """Return everything about one step, and why it does not have `count` micro-batches if that was asked."""
    step = schedule.steps[number]
    shaped = shaped_micro_batches(schedule, number, range(schedule.layout.dp))
    asked = {} if count is None else {"why_not": why_not(schedule, number, count)}
    return asked | {
        "step": number,
        "micro_batches": step.num_micro_batches,
        "fewest": step.bounds.micro_batches,
        "reasons": [asdict(reason) for reason in step.reasons],
        "bounded": [asdict(item) for item in shaped],
    }
