"""`vime-schedule report`: every figure of a saved plan."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from vime_schedule._cli._arguments import add_json_argument
from vime_schedule._cli._console import print_lines, terminal_width
from vime_schedule._cli._files import read_schedule, write_text
from vime_schedule._cli._lengths import read_lengths
from vime_schedule._cli._numbers import factor
from vime_schedule._cli._summary import summary_lines
from vime_schedule._render._plan_text import plan_lines

NAME = "report"
SUMMARY = "figures of a saved plan"
DESCRIPTION = """\
Print every figure of a plan: imbalance, lockstep, bubble, fill, padding, with
lower bounds and the gap to each. Checks the plan against lengths if given."""
EXAMPLES = """\
examples:
  vime-schedule report plan.json
  vime-schedule report plan.json --lengths lengths.csv --json
  vime-schedule report plan.json --html plan.html
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("plan", metavar="PLAN", help="JSON that `plan -o` wrote; - is stdin")
    parser.add_argument("--lengths", metavar="FILE", help="check that the plan belongs to these lengths")
    parser.add_argument("--length-field", metavar="NAME", help="field with a sample's tokens; A+B adds two fields")
    parser.add_argument(
        "--backward-ratio", type=factor, default=2.0, metavar="X", help="backward over forward time (2)"
    )
    parser.add_argument("--html", metavar="FILE", help="write a page that shows the plan")
    add_json_argument(parser)


def run(arguments: argparse.Namespace) -> None:
    """Read, check, print."""
    schedule = read_schedule(arguments.plan)
    if arguments.lengths:
        lengths = read_lengths(arguments.lengths, length_field=arguments.length_field)
        schedule.validate(lengths.total_lengths)
    report = schedule.report(backward_ratio=arguments.backward_ratio)
    if arguments.html:
        from vime_schedule._render._plan_page import plan_page

        write_text(arguments.html, plan_page(schedule))
    if arguments.json:
        print(json.dumps({"fingerprint": schedule.fingerprint, **asdict(report)}))
        return
    width = terminal_width()
    print_lines(summary_lines(schedule, report, width))
    for number, step in enumerate(schedule.steps[:3]):
        print_lines([[], [(f"step {number}", "title")]])
        print_lines(plan_lines(step, width=width, oversize=schedule.oversize))
