"""The one error of this package, and the checks every value object shares.

An error says where, what was given, what is needed and what to do.
"""

from __future__ import annotations

from collections.abc import Collection


class ScheduleError(ValueError):
    """Input that cannot be planned, or a plan that breaks a law.

    >>> raise ScheduleError("`dp` is 0 but counts ranks: give a whole number of at least 1.")
    Traceback (most recent call last):
    vime_schedule._errors.ScheduleError: `dp` is 0 but counts ranks: give a whole number of at least 1.
    """


def check_positive(name: str, value: object, meaning: str) -> None:
    """Refuse anything but a whole number of at least 1 for the field `name`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ScheduleError(f"`{name}` is {value!r} but {meaning}: give a whole number of at least 1.")


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Refuse a value of the option `name` that is not one of `choices`."""
    if value not in choices:
        raise ScheduleError(f"`{name}` is {value!r}: choose one of {', '.join(map(repr, choices))}.")
