"""`vime-schedule simulate`: the pipeline of one rank in one step, as a Gantt chart."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from vime_schedule._cli._arguments import add_json_argument
from vime_schedule._cli._console import print_lines, terminal_width
from vime_schedule._cli._figures import percent
from vime_schedule._cli._files import check_index, read_schedule, write_text
from vime_schedule._cli._numbers import factor
from vime_schedule._cli._prose import paragraph
from vime_schedule._pipeline import PipelineTimeline, pipeline_makespan, simulate
from vime_schedule._render._text import Line
from vime_schedule._render._timeline_text import timeline_lines
from vime_schedule._schedule import Schedule

NAME = "simulate"
SUMMARY = "run a plan through the 1F1B or interleaved pipeline on paper"
DESCRIPTION = """\
Simulate 1F1B, or interleaved 1F1B with vpp > 1, on one rank of one step of a
plan, and show when every stage computes and when it idles."""
EXAMPLES = """\
examples:
  vime-schedule simulate plan.json
  vime-schedule simulate plan.json --step 0 --rank 3 --backward-ratio 3
  vime-schedule simulate plan.json --svg pipeline.svg --html pipeline.html
  vime-schedule simulate plan.json --json | jq .bubble_fraction
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("plan", metavar="PLAN", help="JSON that `plan -o` wrote; - is stdin")
    parser.add_argument("--step", type=int, default=0, metavar="N", help="step to simulate (0)")
    parser.add_argument("--rank", type=int, metavar="N", help="data-parallel rank (default: the slowest pipeline)")
    parser.add_argument(
        "--backward-ratio", type=factor, default=2.0, metavar="X", help="backward over forward time (2)"
    )
    parser.add_argument(
        "--transfer", type=factor, default=0.0, metavar="X", help="time between stages, in cost units (0)"
    )
    parser.add_argument("--forward-only", action="store_true", help="an inference pass, as for log-probs")
    parser.add_argument("--svg", metavar="FILE", help="write the chart as SVG")
    parser.add_argument("--html", metavar="FILE", help="write a page with the chart")
    add_json_argument(parser)


def run(arguments: argparse.Namespace) -> None:
    """Simulate, print, write."""
    schedule = read_schedule(arguments.plan)
    check_index(arguments.step, len(schedule.steps), "--step", "step")
    costs = schedule.steps[arguments.step].costs
    if arguments.rank is not None:
        check_index(arguments.rank, len(costs), "--rank", "rank")
    rank = _slowest(schedule, costs, arguments.backward_ratio) if arguments.rank is None else arguments.rank
    timeline = simulate(
        costs[rank],
        layout=schedule.layout,
        backward_ratio=arguments.backward_ratio,
        transfer=arguments.transfer,
        forward_only=arguments.forward_only,
    )
    title = f"step {arguments.step}, rank {rank}, {schedule.layout}"
    _write_drawings(arguments, timeline, title)
    if arguments.json:
        print(json.dumps(_as_dict(timeline, arguments.step, rank)))
        return
    print_lines(_lines(schedule, timeline, title, terminal_width()))


def _slowest(schedule: Schedule, costs: Sequence[Sequence[float]], backward_ratio: float) -> int:
    """Return the rank whose training pipeline takes longest."""
    layout = schedule.layout
    times = [
        pipeline_makespan(row, pp=layout.pp, vpp=layout.vpp, group=layout.group, backward_ratio=backward_ratio)
        for row in costs
    ]
    return times.index(max(times))


def _write_drawings(arguments: argparse.Namespace, timeline: PipelineTimeline, title: str) -> None:
    """Write the files that were asked for."""
    if arguments.svg:
        from vime_schedule._render._timeline_svg import timeline_svg

        write_text(arguments.svg, timeline_svg(timeline))
    if arguments.html:
        from vime_schedule._render._timeline_page import timeline_page

        write_text(arguments.html, timeline_page(timeline, title))


def _lines(schedule: Schedule, timeline: PipelineTimeline, title: str, width: int) -> list[Line]:
    """Return headline, chart and legend."""
    kind = "interleaved 1F1B" if schedule.layout.vpp > 1 else "1F1B"
    return [
        *paragraph(title, width, "title"),
        *paragraph(f"{kind}: makespan {timeline.makespan:.6g}, bubble {percent(timeline.bubble_fraction)}", width),
        [],
        *timeline_lines(timeline, width=width),
        [("░", "forward"), (" forward  ", ""), ("▓", "backward"), (" backward  · idle", "")],
    ]


def _as_dict(timeline: PipelineTimeline, step: int, rank: int) -> dict[str, object]:
    """Return the timeline with every slot."""
    return {
        "step": step,
        "rank": rank,
        "makespan": timeline.makespan,
        "bubble_fraction": timeline.bubble_fraction,
        "stages": [
            {
                "busy": timeline.busy(stage),
                "peak_in_flight": timeline.peak_in_flight(stage),
                "slots": [
                    {"backward": slot.operation.backward, "chunk": slot.operation.chunk}
                    | {"micro_batch": slot.operation.micro_batch, "start": slot.start, "end": slot.end}
                    for slot in slots
                ],
            }
            for stage, slots in enumerate(timeline.stages)
        ],
    }
