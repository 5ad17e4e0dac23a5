"""From the arguments of a command to a configuration that was checked, with neither torch nor Ray."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vime_train.config import ConfigError, check_launch, load_config, with_iterations
from vime_train.data import DataError, load_source
from vime_train.plugins import calling
from vime_train.state import RunDirectory, StateError

if TYPE_CHECKING:
    import argparse

    from vime_train.config import RunConfig


def checked_config(arguments: argparse.Namespace) -> RunConfig:
    """The configuration, after every check that can be made before anything starts."""
    config, vocab_size = with_source(load_config(arguments.config, arguments.overrides))
    check_launch(config, vocab_size=vocab_size)
    try:
        RunDirectory.check_new(config)
    except StateError as error:
        raise ConfigError(str(error)) from error
    return config


def with_source(config: RunConfig) -> tuple[RunConfig, int | None]:
    """What a data source that brings its own tokenizer decides: the run's iterations, and the entries of the tokenizer.

    With `model.path` the source needs that model's tokenizer, and transformers with it, so it is not asked here.
    """
    if config.model.path is not None:
        return config, None
    try:
        source = load_source(config.data)
        with calling(f"data.source = {config.data.source!r}", error=DataError):
            num_problems, vocab_size = source.num_problems, source.tokenizer.vocab_size
    except DataError as error:
        raise ConfigError(str(error)) from error
    return with_iterations(config, num_problems), vocab_size
