"""Field access for Hugging Face configs with errors that name the field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vime_schedule._errors import ScheduleError

NEEDED = "`FlopsCost.from_hf_config` reads the dict of a model's config.json"


@dataclass(frozen=True, slots=True)
class ConfigReader:
    """The language model's part of a config. An explicit null counts as absent, as in the Hugging Face classes."""

    fields: Mapping[str, Any]

    @classmethod
    def of_language_model(cls, config: Mapping[str, Any]) -> Self:
        """Step into `text_config` where a multimodal config nests its language model."""
        if not isinstance(config, Mapping):
            raise ScheduleError(f"{NEEDED} but got {type(config).__name__}: pass `config.to_dict()`.")
        nested = config.get("text_config")
        return cls(nested if isinstance(nested, Mapping) and "hidden_size" not in config else config)

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.fields.get(name) is not None

    def first_present(self, *names: str) -> str | None:
        """Return the first of `names` that the config has."""
        return next((name for name in names if self.has(name)), None)

    def size(self, name: str, *, default: int | None = None) -> int:
        """Return a whole number of at least 1."""
        value = self.fields.get(name)
        if value is None and default is not None:
            return default
        if value is None:
            raise ScheduleError(f"{NEEDED} but `{name}` is missing: add it, or use PolynomialCost.")
        return self._whole(name, value, lowest=1)

    def count(self, name: str) -> int:
        """Return a whole number of at least 0; absent is 0."""
        value = self.fields.get(name)
        return 0 if value is None else self._whole(name, value, lowest=0)

    def sequence(self, name: str) -> list[Any]:
        """Return a list; absent is empty."""
        value = self.fields.get(name)
        if value is None:
            return []
        if not isinstance(value, list | tuple):
            raise ScheduleError(f"{NEEDED}: `{name}` is {value!r} but must be a list: correct the config.")
        return list(value)

    @staticmethod
    def _whole(name: str, value: object, *, lowest: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
            raise ScheduleError(
                f"{NEEDED}: `{name}` is {value!r} but must be a whole number of at least {lowest}: correct the config."
            )
        return value
