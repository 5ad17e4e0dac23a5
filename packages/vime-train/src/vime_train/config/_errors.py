"""What is wrong with a configuration."""

from __future__ import annotations

from vime_train._errors import RunError


class ConfigError(RunError, ValueError):
    """A configuration that cannot work: where, what was given, what is needed, what to do."""
