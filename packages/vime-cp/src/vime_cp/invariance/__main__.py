"""``python -m vime_cp.invariance module:function``: examine a loss function; exit 0 if every law holds, 1 if not."""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import TYPE_CHECKING, get_args

from . import LAWS, Combine, check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._evaluate import LossFunction


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 every law holds, 1 one does not, 2 wrong arguments."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        function = _load(options.function)
        report = check(
            function,
            combine=options.combine,
            laws=options.law,
            examples=options.examples,
            seed=options.seed,
            tolerance=options.tolerance,
        )
    except ValueError as error:
        parser.error(str(error))
    print(report)
    return 0 if report.holds else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m vime_cp.invariance",
        description="Does a loss, or its gradient, depend on how the batch was split over micro-batches, DP and CP?",
        epilog="laws: " + "; ".join(f"{law.name} ({law.meaning})" for law in LAWS),
    )
    parser.add_argument("function", help="module:function, taking a vime_cp.invariance.Shard and returning its loss")
    parser.add_argument("--combine", choices=get_args(Combine), default="sum", help="how a trainer combines the losses")
    parser.add_argument("--law", action="append", metavar="NAME", help="examine this law only; may be repeated")
    parser.add_argument("--examples", type=int, default=25, help="random cases per law (default: 25)")
    parser.add_argument("--seed", type=int, default=0, help="same seed, same cases (default: 0)")
    parser.add_argument("--tolerance", type=float, default=1e-6, help="relative and absolute (default: 1e-6)")
    return parser


def _load(name: str) -> LossFunction:
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        raise ValueError(f"function is {name!r}: give module:function, such as my_losses:policy")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ValueError(f"function is {name!r} but {error}: run from the folder that holds the module") from error
    function = getattr(module, attribute, None)
    if not callable(function):
        raise ValueError(f"function is {name!r} but {module_name} has no function {attribute!r}")
    checked: LossFunction = function
    return checked


if __name__ == "__main__":
    sys.exit(main())
