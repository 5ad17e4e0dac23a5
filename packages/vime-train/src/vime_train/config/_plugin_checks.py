"""Launch checks of extension points: every import path leads to a callable that takes the call it is for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vime_train.plugins import PluginError, contract_of, load, resolve

if TYPE_CHECKING:
    from vime_train.config._run_config import RunConfig


def plugin_problems(config: RunConfig) -> Iterator[str]:
    """One sentence per import path that cannot be used."""
    for key, path in _paths(config):
        try:
            if key.endswith("source"):
                resolve(path, key=key)
            else:
                load(path, contract_of(key))
        except PluginError as error:
            yield str(error)


def _paths(config: RunConfig) -> Iterator[tuple[str, str]]:
    named = {
        "data.source": config.data.source,
        "rollout.function": config.rollout.function,
        "rollout.reward": config.rollout.reward,
        "rollout.group_reward": config.rollout.group_reward,
        "rollout.group_filter": config.rollout.group_filter,
        "rollout.sample_filter": config.rollout.sample_filter,
        "rollout.buffer_order": config.rollout.buffer_order,
        "algorithm.advantage_function": config.algorithm.advantage_function,
        "algorithm.loss_function": config.algorithm.loss_function,
    }
    yield from ((key, path) for key, path in named.items() if path is not None)
    yield from ((f"rollout.functions.{name}", path) for name, path in config.rollout.functions.items())
    yield from ((f"rollout.rewards.{name}", path) for name, path in config.rollout.rewards.items())
    yield from ((f"evaluation.sets.{name}.source", one.source) for name, one in config.evaluation.sets.items())
    yield from (("tracking.sinks", path) for path in config.tracking.sinks)
    yield from (("hooks.before_model", path) for path in config.hooks.before_model)
    yield from (("hooks.before_log_probs", path) for path in config.hooks.before_log_probs)
    yield from (("hooks.before_train_step", path) for path in config.hooks.before_train_step)
