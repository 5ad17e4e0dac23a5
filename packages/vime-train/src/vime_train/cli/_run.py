"""`vime-train run`: check, train, report.

Always true: what cannot work is refused before torch or Ray is imported.
"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from vime_train.cli._config import checked_config
from vime_train.cli._show import show_report

if TYPE_CHECKING:
    import argparse


def run(arguments: argparse.Namespace) -> int:
    """Train as the configuration says."""
    config = checked_config(arguments)
    from vime_train.controller import run as train
    from vime_train.report import make_progress

    progress = make_progress()
    try:
        with redirect_stdout(sys.stderr):  # Ray writes there what it thinks of a death
            root = train(config, progress=progress)
    finally:
        progress.close()
    show_report(root)
    return 0
