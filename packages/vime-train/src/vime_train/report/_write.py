"""Everything that a run leaves for its reader, from the files in its directory.

Always true: it can be written again at any time, also for a run that was stopped; what a run lacks is left out.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from vime_train._errors import RunError
from vime_train.report._curves import write_curves
from vime_train.report._page import run_page
from vime_train.report._records import read_records
from vime_train.report._samples import PLAN, SAMPLES
from vime_train.report._summary import Summary, summarise
from vime_train.report._table import table_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """The summary of a run, the files about it that were written, and why one was not."""

    title: str
    summary: Summary
    files: tuple[Path, ...]
    problems: tuple[str, ...]


class ReportError(RunError):
    """A page that could not be written."""


def write_report(run_dir: str | Path) -> RunReport:
    """Write `curves.png`, `plan.html` and `report.html` into a run directory."""
    root = Path(run_dir)
    config = json.loads((root / "config.json").read_text(encoding="utf-8"))
    records = read_records(root / "metrics.jsonl")
    summary = summarise(records)
    curves, page = root / "curves.png", root / "report.html"
    split, limit = config["evaluation"]["split"].replace("_", " "), config["engine"]["max_log_prob_difference"]
    write_curves(records, curves, title=config["name"], split=split, limit=limit)
    plan, problems = _write_plan(root)
    samples = root / SAMPLES
    page.write_text(
        run_page(
            config["name"],
            table_rows(summary),
            curves_png=curves.read_bytes(),
            samples=json.loads(samples.read_text(encoding="utf-8")) if samples.exists() else None,
            plan_html=plan.read_text(encoding="utf-8") if plan else None,
        ),
        encoding="utf-8",
    )
    files = (curves, page) if plan is None else (curves, plan, page)
    return RunReport(title=config["name"], summary=summary, files=files, problems=problems)


def write_plan_page(plan_json: str, page: Path) -> None:
    """Write the page of a plan, drawn by the command line of vime-schedule.

    Raises:
        ReportError: if it is not a plan that the installed vime-schedule reads.
    """
    command = [sys.executable, "-m", "vime_schedule", "report", "-", "--html", str(page)]
    done = subprocess.run(command, check=False, capture_output=True, timeout=60, input=plan_json, text=True)
    if done.returncode:
        raise ReportError(f"{page} was not written: {done.stderr.strip()}")


def _write_plan(root: Path) -> tuple[Path | None, tuple[str, ...]]:
    """The page of the last plan, or why there is none."""
    if not (root / PLAN).exists():
        return None, ()
    page = root / "plan.html"
    try:
        write_plan_page((root / PLAN).read_text(encoding="utf-8"), page)
    except ReportError as error:
        return None, (str(error),)
    return page, ()
