"""A live display for a terminal: a bar for each phase, and under the last one its figures.

Always true: lines that are said stand above the bars and stay; a finished phase leaves its bar; nothing that is drawn
is wider than the terminal, and no figure is cut: what does not fit goes to the next line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from vime_train.report._progress import PlainProgress, Progress, figures

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import TaskID

_BESIDE_THE_BAR = 30
"""Columns of the name, of `1234/1234` and of the time."""
_INDENT = "  "


class LiveProgress:
    """Progress bars by rich."""

    def __init__(self, console: Console) -> None:
        from rich import progress
        from rich.text import Text

        shown: list[str] = []

        class Bars(progress.Progress):
            """The bars, and the figures of the phase that runs under them."""

            def get_renderables(self) -> Iterable[RenderableType]:
                yield self.make_tasks_table(self.tasks)
                for line in wrapped(shown, width=console.width):
                    yield Text(line, style="dim", no_wrap=True)

        self._shown = shown
        self._display = Bars(
            progress.TextColumn("{task.description:<10}"),
            progress.BarColumn(bar_width=max(4, min(24, console.width - _BESIDE_THE_BAR))),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
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
            self._tasks[phase] = self._display.add_task(phase, total=total)
        self._shown[:] = figures(values)
        self._display.update(self._tasks[phase], completed=done, total=total)

    def close(self) -> None:
        """Leave the bars as they are and give the terminal back."""
        self._display.stop()


def wrapped(parts: Sequence[str], *, width: int) -> list[str]:
    """Parts on as few lines as they need, indented; a part is never cut in two.

    >>> wrapped(["loss 0.100", "reward 0.500", "seconds 2.250"], width=30)
    ['  loss 0.100  reward 0.500', '  seconds 2.250']
    """
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(_INDENT) + len(part) <= width:
            lines[-1] += f"{_INDENT}{part}"
        else:
            lines.append(f"{_INDENT}{part}")
    return lines


def make_progress() -> Progress:
    """Live bars where the error stream is a terminal, plain lines elsewhere."""
    if not sys.stderr.isatty():
        return PlainProgress()
    from rich.console import Console

    return LiveProgress(Console(stderr=True))
