"""The argument parser: one sub-command per module, one-line errors, examples in every help text."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

import vime_schedule._cli._calibrate as calibrate_command
import vime_schedule._cli._compare as compare_command
import vime_schedule._cli._explain as explain_command
import vime_schedule._cli._plan as plan_command
import vime_schedule._cli._report as report_command
import vime_schedule._cli._simulate as simulate_command
import vime_schedule._cli._what_if as what_if_command

EXAMPLES = """\
examples:
  vime-schedule plan lengths.jsonl --dp 8 --max-tokens-per-gpu 16384
  seq 100 100 6400 | vime-schedule plan - --dp 4 --max-tokens-per-gpu 8192
  vime-schedule plan lengths.csv --dp 8 --pp 4 --vpp 2 \\
      --max-tokens-per-gpu 16384 -o plan.json --html plan.html
  vime-schedule explain plan.json
  vime-schedule compare lengths.csv --dp 8 --max-tokens-per-gpu 16384
  vime-schedule what-if lengths.csv --dp 4,8 --pp 1,2,4 \\
      --max-tokens-per-gpu 8192,16384

Lengths are JSONL (objects or numbers), JSON, CSV with a header, or plain
numbers; `-` is stdin. Every command takes --json. Exit codes: 0 done, 2 bad
input (one line on stderr says what to do).
"""


COMMANDS = (
    plan_command,
    report_command,
    explain_command,
    compare_command,
    simulate_command,
    what_if_command,
    calibrate_command,
)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors take one line."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and where to find help, and exit with 2."""
        told = " ".join(message.split())
        print(f"{self.prog}: error: {told}; see `{self.prog} --help`.", file=sys.stderr)
        raise SystemExit(2)


def build_parser() -> Parser:
    """Build the whole command line."""
    parser = Parser(
        prog="vime-schedule",
        usage="%(prog)s [-h] [--version] COMMAND ...",
        description="Plan RL micro-batches over data, pipeline and context parallel ranks.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version)
    commands = parser.add_subparsers(
        prog=parser.prog, title="commands", metavar="COMMAND".ljust(11), required=True, dest="command"
    )
    for module in COMMANDS:
        command = commands.add_parser(
            module.NAME,
            help=module.SUMMARY,
            description=module.DESCRIPTION,
            epilog=module.EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


class _Version(argparse.Action):
    """Look the version up only when asked: importlib.metadata is slow to import."""

    def __init__(self, option_strings: list[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="show the version and exit")

    def __call__(self, *_: object) -> None:
        from importlib.metadata import version

        print("vime-schedule", version("vime-schedule"))
        raise SystemExit(0)
