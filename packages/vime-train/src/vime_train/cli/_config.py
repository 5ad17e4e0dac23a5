"""From the arguments of a command to a configuration that was checked, with neither torch nor Ray."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vime_train.config import ConfigError, check_launch, load_config
from vime_train.data import DataError, load_source
from vime_train.state import RunDirectory, StateError

if TYPE_CHECKING:
    import argparse

    from vime_train.config import RunConfig


def checked_config(arguments: argparse.Namespace) -> RunConfig:
    """The configuration, after every check that can be made before anything starts."""
    config = load_config(arguments.config, arguments.overrides)
    check_launch(config, vocab_size=vocab_size(config))
    try:
        RunDirectory.check_new(config)
    except StateError as error:
        raise ConfigError(str(error)) from error
    return config


def vocab_size(config: RunConfig) -> int | None:
    """Entries of the tokenizer that a data source brings; a model's own are in its directory."""
    if config.model.path is not None:
        return None
    try:
        return load_source(config.data).tokenizer.vocab_size
    except DataError as error:
        raise ConfigError(str(error)) from error
