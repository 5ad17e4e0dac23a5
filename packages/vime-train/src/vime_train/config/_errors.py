"""What is wrong with a configuration."""

from __future__ import annotations


class ConfigError(ValueError):
    """A configuration that cannot work: where, what was given, what is needed, what to do."""
