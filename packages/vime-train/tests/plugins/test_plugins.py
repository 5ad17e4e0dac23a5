"""Import paths, contracts, and calls into a user's code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vime_train._errors import RunError
from vime_train.plugins import CONTRACTS, PluginCallError, PluginError, calling, check_signature, load, resolve


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Makes a module of a source text, and returns its name."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(source: str) -> str:
        name = f"user_module_{len(list(tmp_path.iterdir()))}"
        (tmp_path / f"{name}.py").write_text(source)
        sys.modules.pop(name, None)
        return name

    return make


def test_a_path_leads_to_its_object() -> None:
    assert resolve("vime_train.plugins:resolve", key="x") is resolve


@pytest.mark.parametrize("path", ["", "a", "a.b", ":b", "a:"])
def test_a_path_without_its_two_parts_is_told(path: str) -> None:
    with pytest.raises(PluginError, match=r"rollout\.reward = .* is not an import path: write `package\.module:name`"):
        resolve(path, key="rollout.reward")


def test_a_missing_module_is_told_as_far_as_it_led() -> None:
    with pytest.raises(PluginError, match=r"there is no module 'vime_train\.nothing'\. Check the spelling"):
        resolve("vime_train.nothing.deeper:x", key="x")


def test_a_missing_name_comes_with_the_nearest() -> None:
    with pytest.raises(PluginError, match=r"module 'vime_train\.plugins' has no 'resolv'\. Did you mean 'resolve'\?"):
        resolve("vime_train.plugins:resolv", key="x")


def test_a_module_that_misses_a_package_is_told(module: Callable[[str], str]) -> None:
    name = module("import a_package_that_nobody_has\n")
    with pytest.raises(PluginError, match=rf"importing '{name}' needs 'a_package_that_nobody_has': install it"):
        resolve(f"{name}:x", key="x")


@pytest.mark.parametrize(("source", "message"), [("x = (\n", "SyntaxError"), ("1 / 0\n", "ZeroDivisionError")])
def test_a_module_that_cannot_be_imported_is_told(module: Callable[[str], str], source: str, message: str) -> None:
    name = module(source)
    with pytest.raises(PluginError, match=rf"x = '{name}:f': importing '{name}' raised {message}"):
        resolve(f"{name}:f", key="x")


SIGNATURES: list[tuple[Callable[..., Any], str, bool]] = [
    (lambda problem, answer, *, finished: 0, "rollout.reward", True),
    (lambda problem, answer, finished: 0, "rollout.reward", True),
    (lambda *anything, **named: 0, "rollout.reward", True),
    (lambda problem, answer, *, finished, more=1: 0, "rollout.reward", True),
    (lambda problem, answer: 0, "rollout.reward", False),
    (lambda problem, answer, *, finished, more: 0, "rollout.reward", False),
    (lambda problem, *, finished: 0, "rollout.reward", False),
    (lambda group: True, "rollout.group_filter", True),
    (lambda group, more: True, "rollout.group_filter", False),
    (lambda: True, "rollout.group_filter", False),
]


@pytest.mark.parametrize(("function", "key", "fits"), SIGNATURES)
def test_a_signature_must_take_the_call(function: Callable[..., Any], key: str, fits: bool) -> None:
    if fits:
        check_signature(function, "a:b", CONTRACTS[key])
    else:
        with pytest.raises(PluginError, match=r"it is called as \("):
            check_signature(function, "a:b", CONTRACTS[key])


def test_what_is_not_callable_is_told() -> None:
    with pytest.raises(PluginError, match=r"rollout\.reward = 'sys:path' is a list; a callable \(problem, answer, \*,"):
        load("sys:path", CONTRACTS["rollout.reward"])


def test_a_contract_reads_as_a_call() -> None:
    assert CONTRACTS["rollout.reward"].call == "(problem, answer, *, finished) -> float or dict"


def test_what_a_users_function_raises_is_told_with_place_and_input() -> None:
    with (
        pytest.raises(
            PluginCallError, match=r"^f raised KeyError: 'x' \(at .*test_plugins\.py:\d+\); given 3\.$"
        ) as told,
        calling("f", lambda: "3"),
    ):
        raise KeyError("x")
    assert isinstance(told.value.__cause__, KeyError)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RunError])
def test_our_errors_and_interrupts_pass_unchanged(error: type[BaseException]) -> None:
    with pytest.raises(error) as told, calling("f", lambda: "3"):
        raise error
    assert type(told.value) is error


def test_hooks_are_called_in_order_and_may_change_columns(module: Callable[[str], str]) -> None:
    from vime_train.config import RunConfig
    from vime_train.data.arithmetic import ArithmeticSums
    from vime_train.plugins import run_hooks
    from vime_train.plugins.exercise import MadeUpEngine
    from vime_train.rollout import Collector, assemble

    name = module(
        "from dataclasses import replace\n"
        "def double(batch, step):\n    return replace(batch, weights=2 * batch.weights)\n"
        "def add(batch, step):\n    return replace(batch, weights=batch.weights + step)\n"
        "def look(batch, step):\n    return None\n"
        "def wrong(batch, step):\n    return batch.weights\n"
    )
    source = ArithmeticSums()
    batch = assemble(Collector(RunConfig(), source).collect(MadeUpEngine(source)).rollouts, RunConfig(), iteration=1)
    first = batch.rank_batches[0]
    paths = [f"{name}:{hook}" for hook in ("double", "look", "add")]
    changed = run_hooks(paths, "hooks.before_train_step", first, step=3)
    assert changed.weights.tolist() == (2 * first.weights + 3).tolist()
    assert run_hooks([], "hooks.before_train_step", first, step=3) is first
    with pytest.raises(PluginCallError, match="returned a ndarray: a RankBatch or None is needed"):
        run_hooks([f"{name}:wrong"], "hooks.before_train_step", first, step=3)
