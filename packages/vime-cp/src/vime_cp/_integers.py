"""Lengths and counts: rounding, and refusing what is not one."""

from __future__ import annotations


def round_up(value: int, multiple: int) -> int:
    """Smallest multiple of ``multiple`` that is at least ``value``."""
    return -(-value // multiple) * multiple


def require_response_length(total_length: int, response_length: int) -> None:
    """Raise ValueError unless ``0 <= response_length <= total_length``."""
    require_int("total_length", total_length, minimum=0)
    require_int("response_length", response_length, minimum=0)
    if response_length > total_length:
        raise ValueError(
            f"response_length is {response_length} but total_length is {total_length}: "
            f"total_length counts prompt and response, so it cannot be the smaller one"
        )


def require_int(name: str, value: int, *, minimum: int) -> None:
    """Raise ValueError unless ``value`` is an int (not a bool) of at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} is {value!r} of type {type(value).__name__}: give an int")
    if value < minimum:
        raise ValueError(f"{name} is {value}: give an int of at least {minimum}")
