"""What each extension point is called with, and what it must return.

Always true of a loaded extension: it is callable, and its signature takes the call that will be made.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from vime_train.plugins._import_path import PluginError, resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """One extension point: the configuration key that names it, and the call that is made."""

    key: str
    positional: tuple[str, ...]
    keywords: tuple[str, ...] = ()
    returns: str

    @property
    def call(self) -> str:
        """The call as a user reads it."""
        arguments = [*self.positional, *(["*", *self.keywords] if self.keywords else [])]
        return f"({', '.join(arguments)}) -> {self.returns}"


CONTRACTS: Mapping[str, Contract] = {
    contract.key: contract
    for contract in (
        Contract(key="rollout.function", positional=("engine", "problems", "context"), returns="list[Rollout]"),
        Contract(
            key="rollout.reward", positional=("problem", "answer"), keywords=("finished",), returns="float or dict"
        ),
        Contract(key="rollout.group_reward", positional=("problem", "answers"), returns="list[float or dict]"),
        Contract(key="rollout.group_filter", positional=("group",), returns="bool"),
        Contract(key="rollout.buffer_order", positional=("groups",), returns="list[int]"),
        Contract(key="rollout.sample_filter", positional=("rollouts",), returns="list[Rollout]"),
        Contract(
            key="algorithm.advantage_function", positional=("rollouts", "section"), returns="one array per sample"
        ),
        Contract(
            key="algorithm.loss_function",
            positional=("log_probs", "old_log_probs", "advantages", "packed", "section"),
            returns="Tensor",
        ),
        Contract(key="hooks.before_model", positional=("config", "rank"), returns="None"),
        Contract(key="hooks.before_log_probs", positional=("batch",), returns="RankBatch | None"),
        Contract(key="hooks.before_train_step", positional=("batch", "step"), returns="RankBatch | None"),
        Contract(key="tracking.sinks", positional=("run_dir",), returns="Sink"),
    )
}


_TABLES = {"rollout.functions": "rollout.function", "rollout.rewards": "rollout.reward"}
"""Tables of functions by name, and the extension point whose call they all take."""


def extension_point(key: str) -> str:
    """The extension point that a configuration key is of; an entry of a table is of the table's.

    >>> extension_point("rollout.rewards.code"), extension_point("rollout.reward")
    ('rollout.reward', 'rollout.reward')
    """
    return _TABLES.get(key.rpartition(".")[0], key)


def contract_of(key: str) -> Contract:
    """The contract of a configuration key."""
    return replace(CONTRACTS[extension_point(key)], key=key)


def load(path: str, contract: Contract) -> Callable[..., Any]:
    """The callable behind an import path, checked against its contract.

    Raises:
        PluginError: if it is not there, not callable, or would refuse the call.
    """
    found = resolve(path, key=contract.key)
    if not callable(found):
        raise PluginError(
            f"{contract.key} = {path!r} is a {type(found).__name__}; a callable {contract.call} is needed."
        )
    check_signature(found, path, contract)
    return found


def check_signature(function: Callable[..., Any], path: str, contract: Contract) -> None:
    """Refuse a callable that cannot be called as the contract says."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return  # a callable written in C shows no signature; the first call will tell
    try:
        signature.bind(*contract.positional, **dict.fromkeys(contract.keywords))
    except TypeError as error:
        raise PluginError(
            f"{contract.key} = {path!r} takes {_names(signature)}; it is called as {contract.call}: {error}."
        ) from error


def _names(signature: inspect.Signature) -> inspect.Signature:
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    return inspect.Signature(bare)
