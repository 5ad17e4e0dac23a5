"""The text summary of a plan: what it is, its figures per step, and what did not go as asked."""

from __future__ import annotations

from collections.abc import Sequence

from vime_schedule._cli._figures import FIGURES, budget_text, figure_cells
from vime_schedule._cli._prose import counted, paragraph
from vime_schedule._cli._tables import Column, table_lines
from vime_schedule._render._text import Line
from vime_schedule._report import ScheduleReport
from vime_schedule._schedule import Schedule

MOST_STEPS = 20


def summary_lines(schedule: Schedule, report: ScheduleReport, width: int) -> list[Line]:
    """Return headline, table and notes."""
    samples = sum(step.num_samples for step in schedule.steps)
    lines: list[Line] = [
        *paragraph(f"plan {schedule.fingerprint[:12]}: {schedule.layout}", width, "title"),
        *paragraph(
            f"{counted(samples, 'sample')} in {counted(len(schedule.steps), 'step')}; at most "
            f"{budget_text(schedule.batching)}; objective {schedule.objective}.",
            width,
        ),
        [],
    ]
    rows = [[str(number), *figure_cells(step)] for number, step in enumerate(report.steps[:MOST_STEPS])]
    if len(report.steps) > 1:
        rows.append(["all", *figure_cells(report.total)])
    lines += table_lines([Column("step"), *FIGURES], rows, width)
    if len(report.steps) > MOST_STEPS:
        lines.append([(f"{len(report.steps) - MOST_STEPS} more steps: use --json", "dim")])
    return lines + _notes(schedule, width)


def _notes(schedule: Schedule, width: int) -> list[Line]:
    """Return a sentence for everything that a reader should not miss."""
    lines: list[Line] = []
    if schedule.oversize:
        lines += paragraph(
            f"{counted(len(schedule.oversize), 'sample')} above the budget, each alone in its micro-batch: "
            f"{positions_text(schedule.oversize)}.",
            width,
        )
    if schedule.dropped:
        lines += paragraph(
            f"{counted(len(schedule.dropped), 'sample')} dropped as asked: {positions_text(schedule.dropped)}.", width
        )
    fillers = sum(step.num_fillers for step in schedule.steps)
    if fillers:
        lines += paragraph(
            f"{counted(fillers, 'filler')} without samples make the number of micro-batches legal.", width
        )
    return [[], *lines] if lines else []


def positions_text(positions: Sequence[int]) -> str:
    """List sample positions, the first few in full."""
    shown = ", ".join(map(str, positions[:8]))
    return shown if len(positions) <= 8 else f"{shown} and {len(positions) - 8} more"
