"""Styled text: a line is a list of (text, style) spans, so one drawing serves colour terminals, pipes and tests."""

from __future__ import annotations

from typing import Literal, TypeAlias

Style: TypeAlias = Literal[
    "", "title", "dim", "good", "bad", "odd", "even", "filler", "oversize", "forward", "backward"
]
Span: TypeAlias = tuple[str, Style]
Line: TypeAlias = list[Span]


def plain(line: Line) -> str:
    """Return a line without its styles.

    >>> plain([("rank 0 ", "dim"), ("##", "even")])
    'rank 0 ##'
    """
    return "".join(text for text, _ in line).rstrip()


def merge(cells: list[Span]) -> Line:
    """Join neighbouring cells of the same style."""
    line: Line = []
    for text, style in cells:
        if line and line[-1][1] == style:
            line[-1] = (line[-1][0] + text, style)
        else:
            line.append((text, style))
    return line
