"""Importing what an extra installs."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def require(module: str, extra: str) -> ModuleType:
    """`module`, or an error with its pip line if it is the one that is missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise ModuleNotFoundError(
            f"{error.name} is not installed: pip install 'vime-metrics[{extra}]'", name=error.name
        ) from error
