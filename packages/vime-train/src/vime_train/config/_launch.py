"""Everything that is checked before Ray or torch start.

Always true of a configuration that passes: the model divides by the layout, the machine has the room, the batch
arithmetic works for every length that can arise, the algorithm's options fit together and are read, native fields
exist and fit, import paths lead to functions that can be called, files of models and saved rollouts are whole or there,
and the packages are installed.
All problems are told at once, each with its numbers and its remedy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vime_train.config._algorithm_checks import algorithm_problems
from vime_train.config._batch_checks import batch_problems
from vime_train.config._engine_checks import engine_problems
from vime_train.config._epochs import length_problems
from vime_train.config._errors import ConfigError
from vime_train.config._expert_checks import expert_problems
from vime_train.config._layout_checks import layout_problems
from vime_train.config._machine import NEEDED_MODULES, Machine
from vime_train.config._native import native_problems
from vime_train.config._off_policy_checks import off_policy_problems
from vime_train.config._partial_checks import partial_problems
from vime_train.config._plugin_checks import plugin_problems
from vime_train.config._saved_checks import saved_problems
from vime_train.config._shape import ModelShape
from vime_train.config._unread_options import unread_options

if TYPE_CHECKING:
    from vime_train.config._run_config import RunConfig


def launch_problems(config: RunConfig, *, machine: Machine, shape: ModelShape) -> list[str]:
    """One sentence per reason why this run cannot work on this machine."""
    return [
        *(f"the module {name!r} is not installed: {NEEDED_MODULES[name]}." for name in machine.missing_modules),
        *layout_problems(config, shape, machine),
        *expert_problems(config, shape),
        *batch_problems(config, shape),
        *length_problems(config),
        *partial_problems(config.rollout),
        *off_policy_problems(config),
        *engine_problems(config, shape),
        *algorithm_problems(config, shape),
        *unread_options(config),
        *native_problems(config),
        *plugin_problems(config),
        *_rewards(config),
        *_profiles(config),
        *saved_problems(config),
    ]


def _rewards(config: RunConfig) -> Iterator[str]:
    given = [name for name in ("reward", "group_reward", "reward_url") if getattr(config.rollout, name) is not None]
    if len(given) > 1:
        yield f"rollout.{' and rollout.'.join(given)} are set: rewards come from one of them, remove the others."

    if config.rollout.reward_key is not None and not given and not config.rollout.rewards:
        yield (
            f"rollout.reward_key = {config.rollout.reward_key!r} is read by nothing in this run: the score of "
            f"{config.data.source!r} is one number. Set rollout.reward, rollout.group_reward, rollout.reward_url or "
            "rollout.rewards, or remove it."
        )


def _profiles(config: RunConfig) -> Iterator[str]:
    debug = config.debug
    for name in ("profile_iterations", "memory_snapshot_iterations"):
        chosen: tuple[int, ...] = getattr(debug, name)
        late = [iteration for iteration in chosen if iteration > config.train.iterations]
        if late and config.train.epochs is None:
            yield f"debug.{name} names {late}, but the run ends after train.iterations = {config.train.iterations}."
        if chosen and debug.rollout_only:
            yield f"debug.{name} = {list(chosen)} with debug.rollout_only = true: trainers that train nothing are idle."
    if debug.memory_snapshot_iterations and not config.on_gpus:
        yield (
            "debug.memory_snapshot_iterations without GPUs (cluster.gpus_per_process = 0): torch keeps a history of "
            "CUDA memory only. Remove it; debug.profile_iterations works on a CPU."
        )


def check_launch(config: RunConfig, *, machine: Machine | None = None, vocab_size: int | None = None) -> None:
    """Refuse what cannot work.

    Args:
        config: the run.
        machine: where it would run; by default here.
        vocab_size: entries of the tokenizer, where the data source brings it.

    Raises:
        ConfigError: with one line per problem.
    """
    shape = ModelShape.of(config.model, vocab_size=vocab_size)
    problems = launch_problems(config, machine=machine or Machine.here(), shape=shape)
    if problems:
        raise ConfigError("\n".join(problems))
