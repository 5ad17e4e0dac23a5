"""`vime-schedule plan`: lengths to a plan."""

from __future__ import annotations

import argparse

from vime_schedule._cli._arguments import (
    add_batching_arguments,
    add_json_argument,
    add_layout_arguments,
    add_length_arguments,
    add_objective_argument,
    add_step_arguments,
    batching_from,
    layout_from,
    request_from,
)
from vime_schedule._cli._console import print_lines, terminal_width
from vime_schedule._cli._files import write_text
from vime_schedule._cli._summary import summary_lines
from vime_schedule._render._plan_text import plan_lines

NAME = "plan"
SUMMARY = "plan the micro-batches of a batch of samples"
DESCRIPTION = """\
Plan which sample runs in which micro-batch, on which rank, in which step.
Prints figures and a chart; -o keeps the plan for the other commands."""
EXAMPLES = """\
examples:
  vime-schedule plan lengths.jsonl --dp 8 --max-tokens-per-gpu 16384
  vime-schedule plan lengths.csv --length-field prompt+response --dp 8 --pp 4 \\
      --vpp 2 --max-tokens-per-gpu 16384 --global-batch-size 128 -o plan.json
  vime-schedule plan lengths.csv --dp 8 --max-tokens-per-gpu 16384 \\
      --cost flops:config.json --objective pipeline --html plan.html
  seq 100 100 6400 | vime-schedule plan - --dp 4 --micro-batch-size 2 --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_length_arguments(parser)
    add_objective_argument(parser)
    add_json_argument(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="write the plan as JSON")
    parser.add_argument("--html", metavar="FILE", help="write a page that shows the plan")
    add_layout_arguments(parser)
    add_batching_arguments(parser)
    add_step_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    """Plan, print, write."""
    request = request_from(arguments)
    batching = batching_from(arguments, arguments.max_tokens_per_gpu)
    schedule = request.plan(layout=layout_from(arguments), batching=batching, objective=arguments.objective)
    if arguments.output:
        write_text(arguments.output, schedule.to_json() + "\n")
    if arguments.html:
        from vime_schedule._render._plan_page import plan_page

        write_text(arguments.html, plan_page(schedule))
    if arguments.json:
        print(schedule.to_json())
        return
    width = terminal_width()
    print_lines(summary_lines(schedule, schedule.report(), width))
    print_lines([[], *plan_lines(schedule.steps[0], width=width, oversize=schedule.oversize)])
