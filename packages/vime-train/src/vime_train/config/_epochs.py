"""The length of a run in iterations, where `train.epochs` gives it in passes over the data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vime_train.config._errors import ConfigError

if TYPE_CHECKING:
    from vime_train.config._run_config import RunConfig


def length_problems(config: RunConfig) -> Iterator[str]:
    """One sentence if the run is given two lengths."""
    section = config.train
    if section.epochs is not None and "iterations" in section.model_fields_set:
        yield (
            f"train.iterations = {section.iterations} and train.epochs = {section.epochs} are both the length of the "
            "run: remove one of them."
        )


def with_iterations(config: RunConfig, num_problems: int | None) -> RunConfig:
    """The run with `train.iterations` and without `train.epochs`.

    An iteration draws `rollout.prompts_per_iteration` problems; the last one goes on into the next epoch where the
    problems do not divide. What a group filter or over-sampling draws besides is not counted.

    Args:
        config: the run.
        num_problems: training problems of the data source; None if there is no end of them.

    Raises:
        ConfigError: if both lengths are given, or the source has no epochs.

    Example:
        >>> from vime_train.config import load_config
        >>> config = load_config(overrides=["train.epochs=2", "rollout.prompts_per_iteration=8"])
        >>> with_iterations(config, 100).train.iterations
        25
    """
    section = config.train
    if section.epochs is None:
        return config
    for problem in length_problems(config):
        raise ConfigError(problem)
    if num_problems is None:
        raise ConfigError(
            f"train.epochs = {section.epochs}: data.source = {config.data.source!r} makes problems without end, so it "
            "has no epochs: set train.iterations."
        )
    iterations = -(-section.epochs * num_problems // config.rollout.prompts_per_iteration)
    return config.model_copy(
        update={"train": section.model_copy(update={"iterations": iterations, "epochs": None})},
    )
