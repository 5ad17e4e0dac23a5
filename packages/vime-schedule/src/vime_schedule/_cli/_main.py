"""Entry point: parse, run, and turn errors into exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from vime_schedule._cli._parser import build_parser
from vime_schedule._errors import ScheduleError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = build_parser().parse_args(argv)
    try:
        arguments.run(arguments)
        sys.stdout.flush()
    except ScheduleError as error:
        print("vime-schedule: error:", " ".join(str(error).split()), file=sys.stderr)
        return 2
    except BrokenPipeError:  # `| head` has seen enough; without this Python complains again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
