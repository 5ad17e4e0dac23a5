"""The commands and their arguments. Every command's module is imported when it runs, so `--help` costs nothing."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

_EPILOG = "A configuration is a TOML file, or the name of a shipped one such as arithmetic.toml."


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments of one command; `command` is the function that runs it."""
    parser = argparse.ArgumentParser(
        prog="vime-train", description="Train language models by reinforcement learning.", epilog=_EPILOG
    )
    commands = parser.add_subparsers(required=True, metavar="command")
    for add in (_run, _resume, _plan, _eval, _export, _convert, _report, _doctor, _check_plugin):
        add(commands)
    return parser.parse_args(argv)


def _command(commands: Any, name: str, help_text: str, *, configured: bool = False) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=help_text, description=help_text, epilog=_EPILOG)
    parser.set_defaults(command=_late(f"vime_train.cli._{name.replace('-', '_')}", name.replace("-", "_")))
    if configured:
        parser.add_argument("config", nargs="*", help="TOML files, each laid over the ones before it")
        _add_overrides(parser)
    return parser


def _add_overrides(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE", help="as in layout.dp=4"
    )


def _late(module: str, name: str) -> Callable[[argparse.Namespace], int]:
    def run(arguments: argparse.Namespace) -> int:
        return int(vars(import_module(module))[name](arguments))

    return run


def _run(commands: Any) -> None:
    _command(commands, "run", "train as a configuration says", configured=True)


def _resume(commands: Any) -> None:
    parser = _command(commands, "resume", "go on with a run from its newest checkpoint")
    parser.add_argument("run_dir", help="the directory of the run")


def _plan(commands: Any) -> None:
    parser = _command(
        commands, "plan", "resolve a configuration, check it and plan one iteration, without training", configured=True
    )
    parser.add_argument("--lengths", metavar="FILE", help="tokens per sample, one number a line; - reads the input")
    parser.add_argument("--tflops", type=float, help="TFLOP/s that a rank reaches in training, to predict seconds")
    parser.add_argument("--html", metavar="FILE", help="write a page that shows the plan")
    parser.add_argument("--show-config", action="store_true", help="print the resolved configuration as JSON, and end")


def _eval(commands: Any) -> None:
    parser = _command(commands, "eval", "answer the problems of a split and score the answers", configured=True)
    parser.add_argument("--run", metavar="DIR", help="evaluate the trained model of this run, with its configuration")
    parser.add_argument("--split", choices=["held_out", "validation"], help="default: evaluation.split")
    parser.add_argument("--problems", type=int, help="default: evaluation.problems")
    parser.add_argument("--samples", type=int, default=1, help="answers per problem; more than 1 gives pass@k")
    parser.add_argument("--temperature", type=float, help="default: 0 for one sample, else rollout.temperature")
    parser.add_argument("--top-p", type=float, help="default: rollout.top_p; no part in greedy answers")
    parser.add_argument("--output", metavar="FILE", help="write every answer and its score as JSON lines")


def _export(commands: Any) -> None:
    parser = _command(commands, "export", "copy the weights of a checkpoint as a Hugging Face directory")
    parser.add_argument("run_dir", help="the directory of the run")
    parser.add_argument("output", help="a directory that does not exist yet")
    parser.add_argument("--iteration", type=int, help="default: the newest checkpoint")


def _convert(commands: Any) -> None:
    parser = _command(commands, "convert", "make a model that can be trained and served from a GGUF file or a tied one")
    parser.add_argument("source", help="a GGUF file, package:file of an installed package, or a Hugging Face directory")
    parser.add_argument("output", help="a directory that does not exist yet")


def _report(commands: Any) -> None:
    parser = _command(commands, "report", "write the curves, the plan and the page of a run again, and print its table")
    parser.add_argument("run_dir", help="the directory of the run")


def _doctor(commands: Any) -> None:
    _command(commands, "doctor", "look at this machine: versions, GPUs, memory, disk, ports")


def _check_plugin(commands: Any) -> None:
    parser = _command(commands, "check-plugin", "check a function of your own against the extension point it is for")
    parser.add_argument("path", help="import path, as in my_package.rewards:length")
    parser.add_argument("--for", dest="key", required=True, help="the configuration key, as in rollout.reward")
    parser.add_argument("--config", action="append", default=[], help="a TOML file, for the options of a data source")
    _add_overrides(parser)
