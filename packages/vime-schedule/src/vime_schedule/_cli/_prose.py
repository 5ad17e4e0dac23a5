"""Prose that fits the terminal."""

from __future__ import annotations

import textwrap

from vime_schedule._render._text import Line, Style


def paragraph(text: str, width: int, style: Style = "") -> list[Line]:
    """Wrap prose into lines of one style."""
    return [[(line, style)] for line in textwrap.wrap(text, width)]


def counted(number: int, noun: str) -> str:
    """Write a number with its noun.

    >>> counted(1, "step"), counted(3, "step")
    ('1 step', '3 steps')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
