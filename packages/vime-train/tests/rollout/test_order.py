"""A user's order of the buffer: it decides what is trained on first, and can lose nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from vime_train.config import ConfigError, Machine, RunConfig, check_launch
from vime_train.data.arithmetic import ArithmeticSums
from vime_train.rollout import Collector, Rollout, RolloutError

SOURCE = ArithmeticSums()
Make = Callable[..., RunConfig]
Groups = Sequence[Sequence[Rollout]]


def newest_first(groups: Groups) -> list[int]:
    return [group[0].group_id for group in reversed(groups)]


def forgets(groups: Groups) -> list[int]:
    return newest_first(groups)[1:]


def repeats(groups: Groups) -> list[int]:
    return newest_first(groups)[:1] * len(groups)


def adds_one(groups: Groups) -> list[int]:
    return [*newest_first(groups), groups[0][0].group_id]


def hands_groups_back(groups: Groups) -> Groups:
    return groups


@pytest.fixture
def ordered(small_run: Make, monkeypatch: pytest.MonkeyPatch) -> Make:
    """A run that draws 6 groups and trains on 4, in an order of this module."""
    monkeypatch.setitem(sys.modules, "orders", sys.modules[__name__])

    def make(name: str, *overrides: str) -> RunConfig:
        partial = ("rollout.partial_rollout=true", "rollout.over_sampling_prompts=6", "rollout.max_attempts=1")
        return small_run(*(overrides or partial), f"rollout.buffer_order=orders:{name}")

    return make


def guess(prompt: str, sample: int, seed: int) -> str:
    return f"#{seed % 20}"


def test_the_order_decides_which_groups_are_taken_and_all_others_wait(ordered: Make, scripted_engine: Any) -> None:
    collector, engine = Collector(ordered("newest_first"), SOURCE), scripted_engine(guess)
    groups = [[rollout.group_id for rollout in collector.collect(engine).rollouts[::4]] for _ in range(3)]
    assert groups == [[5, 4, 3, 2], [9, 8, 7, 6], [13, 12, 11, 10]]
    assert [group[0].group_id for group in collector.buffer.groups] == [0, 1]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("forgets", r"returned the group ids \[4, 3, 2, 1, 0\]; given the finished groups \[0, 1, 2, 3, 4\]"),
        ("repeats", r"returned the group ids \[5, 5, 5, 5, 5\]"),
        ("adds_one", r"returned the group ids \[5, 4, 3, 2, 1\]"),
        ("hands_groups_back", r"raised TypeError: .*given the finished groups \[0, 1, 2, 3, 4\]"),
    ],
)
def test_an_order_that_loses_groups_is_told_and_nothing_is_lost(
    ordered: Make, scripted_engine: Any, name: str, message: str
) -> None:
    collector = Collector(ordered(name), SOURCE)
    with pytest.raises(RolloutError, match=rf"rollout\.buffer_order = 'orders:{name}' {message}"):
        collector.collect(scripted_engine(guess))
    assert collector.state() == {"position": 0, "iteration": 0}


def test_an_order_of_nothing_is_refused_at_launch(ordered: Make) -> None:
    config = ordered("newest_first", "rollout.max_attempts=1")
    with pytest.raises(ConfigError, match=r"rollout\.buffer_order = 'orders:newest_first' is read by nothing"):
        check_launch(config, machine=Machine(cores=2, memory_gib=24.0, gpus=0), vocab_size=64)
