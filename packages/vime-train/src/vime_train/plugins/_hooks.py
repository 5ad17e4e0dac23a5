"""Hooks of the trainers: a user's functions that run when a rank starts, or see its batch and may change its columns.

Always true: the plan a hook returns is the plan it was given; a hook that changes it, or returns something else than a
batch or None, is an error on the rank that ran it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vime_train.plugins._calling import PluginCallError, calling
from vime_train.plugins._contracts import CONTRACTS, load

if TYPE_CHECKING:
    from vime_train.config import RunConfig
    from vime_train.rollout import RankBatch


def run_start_hooks(paths: Sequence[str], config: RunConfig, *, rank: int) -> None:
    """Call the functions of `hooks.before_model` in order.

    Raises:
        PluginCallError: if a function raises.
    """
    for path in paths:
        with calling(f"hooks.before_model = {path!r}", lambda: f"rank {rank}"):
            load(path, CONTRACTS["hooks.before_model"])(config, rank)


def run_hooks(paths: Sequence[str], key: str, batch: RankBatch, *, step: int | None = None) -> RankBatch:
    """Call the functions of a hook in order, each on what the one before it returned.

    Args:
        paths: import paths, from the configuration.
        key: the configuration key, `hooks.before_log_probs` or `hooks.before_train_step`.
        batch: the rank's batch.
        step: the optimizer step within the batch, for `before_train_step`.

    Raises:
        PluginCallError: if a function raises or changes the plan.
    """
    arguments = () if step is None else (step,)
    samples = len(batch.tokens)
    for path in paths:
        name = f"{key} = {path!r}"
        with calling(name, lambda: f"a batch of {samples} samples"):
            changed = load(path, CONTRACTS[key])(batch, *arguments)
        if changed is None:
            continue
        if not isinstance(changed, type(batch)):
            raise PluginCallError(f"{name} returned a {type(changed).__name__}: a RankBatch or None is needed.")
        if (changed.fingerprint, changed.schedule) != (batch.fingerprint, batch.schedule):
            raise PluginCallError(f"{name} changed the plan: a hook may change columns of a batch, not its plan.")
        batch = changed
    return batch
