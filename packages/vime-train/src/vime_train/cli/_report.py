"""`vime-train report`: the files about a run, written again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vime_train.cli._show import show_report
from vime_train.config import ConfigError

if TYPE_CHECKING:
    import argparse


def report(arguments: argparse.Namespace) -> int:
    """Write curves, plan and page of a run directory, and print its table."""
    root = Path(arguments.run_dir)
    for name in ("config.json", "metrics.jsonl"):
        if not (root / name).is_file():
            raise ConfigError(f"{root} holds no {name}: name the directory of a run.")
    show_report(root)
    return 0
