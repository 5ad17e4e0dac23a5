"""Print styled lines: in colour through rich on a terminal, plain everywhere else."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable

from vime_schedule._render._text import Line, Style, plain

COLOURS: dict[Style, str] = {
    "": "",
    "title": "bold",
    "dim": "bright_black",
    "good": "green",
    "bad": "bold red",
    "even": "blue",
    "odd": "cyan",
    "filler": "bright_black",
    "oversize": "yellow",
    "forward": "blue",
    "backward": "green",
}
ASCII = str.maketrans("█▒░▓│·─×", "#=-+|.-x")


def terminal_width() -> int:
    """Columns of the terminal, or of COLUMNS; 80 when neither is known."""
    return shutil.get_terminal_size((80, 24)).columns


def print_lines(lines: Iterable[Line]) -> None:
    """Print lines, in colour if stdout is a terminal and rich is installed."""
    lines = list(lines)
    if sys.stdout.isatty() and _print_with_rich(lines):
        return
    unicode = (sys.stdout.encoding or "ascii").lower().startswith("utf")
    for line in lines:
        print(plain(line) if unicode else plain(line).translate(ASCII).encode("ascii", "replace").decode())


def _print_with_rich(lines: list[Line]) -> bool:
    """Print through rich; False when it is not installed."""
    try:
        from rich.console import Console
        from rich.text import Text
    except ModuleNotFoundError as error:
        if error.name != "rich":
            raise
        return False
    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(Text.assemble(*((text, COLOURS[style]) for text, style in line)))
    return True
