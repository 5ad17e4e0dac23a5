"""Tables that fit the terminal: where they do not, the least important columns give way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vime_schedule._cli._prose import paragraph
from vime_schedule._render._text import Line

GAP = "  "


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, and its rank when room is short (the highest goes first)."""

    title: str
    rank: int = 0
    left: bool = False


def table_lines(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[Line]:
    """Return title and rows, aligned, without the columns that do not fit."""
    sizes = [max(len(row[i]) for row in [[column.title for column in columns], *rows]) for i in range(len(columns))]
    shown = list(range(len(columns)))
    hidden: list[str] = []
    while len(shown) > 1 and sum(sizes[i] + len(GAP) for i in shown) - len(GAP) > width:
        last = max(shown, key=lambda i: (columns[i].rank, i))
        shown.remove(last)
        hidden.append(columns[last].title)

    def aligned(row: Sequence[str]) -> str:
        cells = [row[i].ljust(sizes[i]) if columns[i].left else row[i].rjust(sizes[i]) for i in shown]
        return GAP.join(cells)[:width].rstrip()

    lines: list[Line] = [[(aligned([column.title for column in columns]), "title")]]
    lines.extend([(aligned(row), "")] for row in rows)
    if hidden:
        lines += paragraph(f"not shown: {', '.join(dict.fromkeys(reversed(hidden)))}", width, "dim")
    return lines
