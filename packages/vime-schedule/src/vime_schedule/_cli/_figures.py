"""How figures are written: ratios with four decimals, fractions as percent, gaps with their sign."""

from __future__ import annotations

from vime_schedule._batching import Batching, TokenBudget
from vime_schedule._cli._tables import Column
from vime_schedule._report import StepReport

FIGURES = (
    Column("M"),
    Column("imbalance"),
    Column("gap", 5),
    Column("lockstep", 1),
    Column("gap", 5),
    Column("bubble", 2),
    Column("fill", 3),
    Column("padding", 4),
    Column("fillers", 6),
)


def figure_cells(report: StepReport) -> list[str]:
    """Return one report under the columns of `FIGURES`."""
    return [
        str(report.micro_batches),
        f"{report.imbalance:.4f}",
        gap(report.imbalance_gap),
        f"{report.lockstep:.4f}",
        gap(report.lockstep_gap),
        percent(report.bubble_fraction),
        percent(report.fill_fraction),
        percent(report.padding_fraction),
        str(report.fillers),
    ]


def percent(fraction: float) -> str:
    """Write a fraction as percent."""
    return f"{100 * fraction:.1f}%"


def gap(fraction: float) -> str:
    """Write how far a value lies above its lower bound."""
    return f"+{100 * fraction:.2f}%"


def budget_text(batching: Batching) -> str:
    """Name the bound on a micro-batch in words."""
    if isinstance(batching, TokenBudget):
        return f"{batching.max_tokens_per_gpu} tokens per GPU"
    return f"{batching.micro_batch_size} samples per micro-batch"
