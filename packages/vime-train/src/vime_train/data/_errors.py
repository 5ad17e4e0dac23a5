"""What is wrong with data: which file, which line, and what is needed."""

from __future__ import annotations

from vime_train._errors import RunError


class DataError(RunError, ValueError):
    """Data that cannot be read or used."""
