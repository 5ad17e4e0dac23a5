"""The table at the end of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from vime_train.report._summary import Summary


PLAIN_WIDTH = 120
"""Columns of a table that no terminal bounds."""


def table_rows(summary: Summary) -> list[tuple[str, str]]:
    """What the table says, as label and text.

    >>> from vime_train.report._summary import summarise
    >>> table_rows(summarise([]))
    [('iterations', '0')]
    """
    rows = [("iterations", str(summary.iterations))]
    if summary.accuracy:
        rows.append(("greedy accuracy", f"{summary.accuracy[0]:.1%} -> {summary.accuracy[1]:.1%}"))
    if summary.reward:
        rows.append(("sampled reward", f"{summary.reward[0]:.3f} -> {summary.reward[1]:.3f}"))
    if summary.length:
        rows.append(("response length", f"{summary.length[0]:.1f} -> {summary.length[1]:.1f} tokens"))
    if summary.seconds:
        rows.append(("step time", _split(summary.seconds)))
    if summary.hidden is not None:
        rows.append(("hidden", f"{summary.hidden:.2f} s of generation ran beside other phases"))
    if summary.orchestration is not None:
        share = summary.orchestration / summary.seconds["step"]
        rows.append(("orchestration", f"{summary.orchestration:.2f} s, {share:.1%} of the step: nobody worked"))
    if summary.imbalance is not None and summary.lockstep is not None:
        rows.append(("imbalance", f"{summary.imbalance:.3f} per step, {summary.lockstep:.3f} in lockstep (1 is ideal)"))
    if summary.padding is not None:
        rows.append(("padding", f"{summary.padding:.1%} of the tokens held"))
    if summary.max_log_prob_difference is not None:
        rows.append(("log-prob difference", f"at most {summary.max_log_prob_difference:.1e} over all weight syncs"))
    return rows


def print_table(summary: Summary, title: str, stream: TextIO) -> None:
    """Write the table; coloured on a terminal, plain elsewhere."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, show_header=False, title_justify="left")
    for label, text in table_rows(summary):
        table.add_row(label, text)
    Console(file=stream, width=None if stream.isatty() else PLAIN_WIDTH).print(table)


def _split(seconds: dict[str, float]) -> str:
    parts = [f"{name} {value:.2f}" for name, value in seconds.items() if name != "step"]
    return f"{seconds['step']:.2f} s: {', '.join(parts)}"
