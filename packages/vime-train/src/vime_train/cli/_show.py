"""What every command that ends a run prints."""

from __future__ import annotations

import sys
from pathlib import Path

from vime_train.report import print_table, write_report


def show_report(root: Path) -> None:
    """Write the files about a run, print its table, and say where everything is."""
    report = write_report(root)
    print_table(report.summary, report.title, sys.stdout)
    for problem in report.problems:
        print(f"vime-train: {problem}", file=sys.stderr)
    print("\n".join(f"  {file}" for file in (*report.files, root / "metrics.jsonl", root / "checkpoints")))
