"""Typed reading of decoded JSON: every access checks, and an error names the path of the field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from vime_schedule._errors import ScheduleError

Choice = TypeVar("Choice", bound=str)


class Fields:
    """One JSON object at `path`, read field by field."""

    def __init__(self, path: str, raw: object) -> None:
        if not isinstance(raw, dict):
            raise ScheduleError(
                f"{path} must be a JSON object but is {_shown(raw)}: pass the text that `to_json` wrote."
            )
        self._path = path
        self._raw = raw

    def value(self, name: str) -> object:
        """The field as decoded, which must be present."""
        if name not in self._raw:
            raise ScheduleError(f"{self._path} has no field {name!r}: pass the text that `to_json` wrote, whole.")
        value: object = self._raw[name]
        return value

    def fields(self, name: str) -> Fields:
        """An object."""
        return Fields(f"{self._path}.{name}", self.value(name))

    def each(self, name: str) -> list[Fields]:
        """A list of objects."""
        return [Fields(f"{self._path}.{name}[{i}]", raw) for i, raw in enumerate(self._list(name))]

    def text(self, name: str) -> str:
        """A string."""
        value = self.value(name)
        if not isinstance(value, str):
            raise self._wrong(name, "a string", value)
        return value

    def choice(self, name: str, choices: Sequence[Choice]) -> Choice:
        """One of `choices`."""
        value = self.text(name)
        for choice in choices:
            if choice == value:
                return choice
        raise self._wrong(name, f"one of {list(choices)}", value)

    def whole(self, name: str) -> int:
        """A whole number."""
        value = self.value(name)
        if type(value) is not int:
            raise self._wrong(name, "a whole number", value)
        return value

    def number(self, name: str) -> float:
        """A finite number of at least 0."""
        return self._number(name, self.value(name))

    def ints(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers."""
        return self._ints(name, self._list(name))

    def grid(self, name: str) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """Ranks of micro-batches of positions."""
        return tuple(
            tuple(self._ints(name, micro_batch) for micro_batch in self._rank(name, rank)) for rank in self._list(name)
        )

    def table(self, name: str, *, like: Sequence[Sequence[object]]) -> tuple[tuple[float, ...], ...]:
        """Ranks of non-negative numbers, as many of them as `like` has entries."""
        table = tuple(tuple(self._rank(name, rank)) for rank in self._list(name))
        if [len(rank) for rank in table] != [len(rank) for rank in like]:
            raise self._wrong(name, "one number per micro-batch", table)
        return tuple(tuple(self._number(name, number) for number in rank) for rank in table)

    def _number(self, name: str, raw: object) -> float:
        if isinstance(raw, bool) or not isinstance(raw, int | float) or not 0 <= raw < float("inf"):
            raise self._wrong(name, "finite numbers of at least 0", raw)
        return float(raw)

    def _rank(self, name: str, raw: object) -> list[object]:
        if not isinstance(raw, list) or not raw:
            raise self._wrong(name, "non-empty lists, one per rank", raw)
        return raw

    def _ints(self, name: str, raw: object) -> tuple[int, ...]:
        if not isinstance(raw, list) or not set(map(type, raw)) <= {int}:
            raise self._wrong(name, "whole numbers", raw)
        return tuple(raw)

    def _list(self, name: str) -> list[object]:
        value = self.value(name)
        if not isinstance(value, list):
            raise self._wrong(name, "a list", value)
        return value

    def _wrong(self, name: str, wanted: str, found: object) -> ScheduleError:
        return ScheduleError(
            f"{self._path}.{name} must be {wanted} but is {_shown(found)}: pass the text that `to_json` wrote."
        )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
