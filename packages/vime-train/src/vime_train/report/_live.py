"""A live display for a terminal: one bar for the phase that runs, with its last figures behind it.

Always true: lines that are said stand above the bar and stay; a finished phase leaves its bar.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from vime_train.report._progress import PlainProgress, Progress, describe

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID


class LiveProgress:
    """Progress bars by rich."""

    def __init__(self, console: Console) -> None:
        from rich import progress

        self._display = progress.Progress(
            progress.TextColumn("{task.description:<10}"),
            progress.BarColumn(bar_width=24),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            progress.TextColumn("{task.fields[figures]}"),
            console=console,
        )
        self._tasks: dict[str, TaskID] = {}
        self._display.start()

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        self._display.console.print(text, markup=False, highlight=False)

    def advance(self, phase: str, done: int, total: int, values: Mapping[str, float]) -> None:
        """Move the bar of the phase and show its figures."""
        if phase not in self._tasks:
            self._tasks[phase] = self._display.add_task(phase, total=total, figures="")
        self._display.update(self._tasks[phase], completed=done, total=total, figures=describe(values))

    def close(self) -> None:
        """Leave the bars as they are and give the terminal back."""
        self._display.stop()


def make_progress() -> Progress:
    """Live bars where the error stream is a terminal, plain lines elsewhere."""
    if not sys.stderr.isatty():
        return PlainProgress()
    from rich.console import Console

    return LiveProgress(Console(stderr=True))
