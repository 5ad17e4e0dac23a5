"""`vime-train`: parse, run one command, answer with an exit code.

Always true: a mistake of the user is one message on the error stream and exit code 2; a run that could not go on is one
message and exit code 1; Ctrl-C is exit code 130, SIGTERM 143.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from vime_train._errors import RunError, Terminated
from vime_train.config import ConfigError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.command(arguments))
    except ConfigError as error:
        return _end(2, str(error), error)
    except RunError as error:
        return _end(1, str(error), error)
    except KeyboardInterrupt as error:
        return _end(130, "interrupted.", error)
    except Terminated as error:
        return _end(143, "asked to end (SIGTERM).", error)


def _end(code: int, message: str, error: BaseException) -> int:
    notes: list[str] = getattr(error, "__notes__", [])
    print(f"vime-train: {message}", *notes, sep="\n", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vime-train", description="Train language models by reinforcement learning.")
    commands = parser.add_subparsers(required=True, metavar="command")
    run = commands.add_parser("run", help="train as a configuration says")
    run.add_argument("config", nargs="*", help="TOML files, each laid over the ones before it")
    run.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    run.set_defaults(command=_run)
    resume = commands.add_parser("resume", help="go on with a run from its newest checkpoint")
    resume.add_argument("run_dir", help="the directory of the run")
    resume.set_defaults(command=_resume)
    return parser


def _resume(arguments: argparse.Namespace) -> int:
    from vime_train.controller import resume

    resume(arguments.run_dir)
    return 0


def _run(arguments: argparse.Namespace) -> int:
    from vime_train.config import check_launch, load_config

    config = load_config(arguments.config, arguments.overrides)
    check_launch(config)
    from vime_train.controller import run

    run(config)
    return 0
