"""`vime-train resume`: go on with a run, report as `run` does."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from vime_train.cli._show import show_report

if TYPE_CHECKING:
    import argparse


def resume(arguments: argparse.Namespace) -> int:
    """Go on from the newest checkpoint of a run directory."""
    from vime_train.controller import resume as go_on
    from vime_train.report import make_progress

    progress = make_progress()
    try:
        with redirect_stdout(sys.stderr):  # Ray writes there what it thinks of a death
            root = go_on(arguments.run_dir, progress=progress)
    finally:
        progress.close()
    show_report(root)
    return 0
