"""`vime-train check-plugin`: a user's function, called as a run would call it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def check_plugin(arguments: argparse.Namespace) -> int:
    """Print what was checked; an extension that does not fit is an error."""
    from vime_train.config import load_config
    from vime_train.plugins.exercise import exercise

    for line in exercise(arguments.path, arguments.key, load_config(arguments.config, arguments.overrides)):
        print(f"ok  {line}")
    return 0
