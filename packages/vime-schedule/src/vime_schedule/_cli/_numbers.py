"""Numbers from text, with no surprise: no signs, no underscores, no other scripts, no thousands of digits."""

from __future__ import annotations

import argparse
import math

from vime_schedule._errors import ScheduleError

MOST_DIGITS = 18


def whole_number(text: str) -> int | None:
    """Return the number that `text` writes, or None if it writes something else.

    >>> whole_number(" 12 "), whole_number("1e3"), whole_number("-1")
    (12, None, None)
    """
    digits = text.strip()
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= MOST_DIGITS else None


def whole_numbers(text: str, option: str) -> list[int]:
    """Parse `8` or `8,16,32`."""
    numbers = [whole_number(word) for word in text.split(",")]
    if not all(numbers):
        raise ScheduleError(f"{option} is {text!r}: give whole numbers of at least 1, separated by commas.")
    return [number for number in numbers if number is not None]


def factor(text: str) -> float:
    """Parse a finite number of at least 0, as an argparse type."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number of at least 0")
    return value
