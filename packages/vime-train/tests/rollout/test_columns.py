"""A user's own columns reach the trainers' hooks and the dumps, and what is wrong with them is told."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from vime_train.config import RunConfig
from vime_train.data.arithmetic import ArithmeticSums
from vime_train.plugins import run_hooks
from vime_train.rollout import (
    Collector,
    Problem,
    RankBatch,
    Rollout,
    RolloutContext,
    RolloutError,
    Sample,
    assemble,
    generate_rollouts,
)

SOURCE = ArithmeticSums()
Make = Callable[..., RunConfig]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> str:
    """An import path of this module."""
    monkeypatch.setitem(sys.modules, "plugins_of_test_columns", sys.modules[__name__])
    return "plugins_of_test_columns"


def answer(prompt: str, sample: int, seed: int) -> str:
    return f"#{(seed + sample) % 3}" * (1 + sample)


def with_columns(
    rollouts: Sequence[Rollout], columns: Callable[[Sample], dict[str, tuple[float, ...]]]
) -> list[Rollout]:
    return [
        replace(one, samples=tuple(replace(sample, columns=columns(sample)) for sample in one.samples))
        for one in rollouts
    ]


def marks(sample: Sample) -> tuple[float, ...]:
    """A number that names rollout and place."""
    return tuple(float(100 * sample.rollout_id + place) for place in range(sample.response_length))


def marked(engine: Any, problems: Sequence[Problem], context: RolloutContext) -> list[Rollout]:
    return with_columns(generate_rollouts(engine, problems, context), lambda sample: {"mark": marks(sample)})


def too_short(engine: Any, problems: Sequence[Problem], context: RolloutContext) -> list[Rollout]:
    return with_columns(generate_rollouts(engine, problems, context), lambda sample: {"mark": (1.0,)})


def taken(engine: Any, problems: Sequence[Problem], context: RolloutContext) -> list[Rollout]:
    return with_columns(generate_rollouts(engine, problems, context), lambda sample: {"values": marks(sample)})


def sometimes(engine: Any, problems: Sequence[Problem], context: RolloutContext) -> list[Rollout]:
    rollouts = generate_rollouts(engine, problems, context)
    return [*rollouts[:5], *with_columns(rollouts[5:], lambda sample: {"mark": marks(sample)})]


def test_a_column_stays_with_its_tokens_to_the_hooks(scripted_engine: Any, small_run: Make, here: str) -> None:
    config = small_run(f"rollout.function={here}:marked", "rollout.drop_zero_variance=false")
    rollouts = Collector(config, SOURCE).collect(scripted_engine(answer)).rollouts
    expected = {
        (*sample.tokens, sample.rollout_id): marks(sample) for rollout in rollouts for sample in rollout.samples
    }
    found: dict[tuple[int, ...], tuple[float, ...]] = {}
    for batch in assemble(rollouts, config, iteration=1).rank_batches:
        seen = run_hooks([f"{here}:halve"], "hooks.before_train_step", batch, step=0)
        for tokens, column in zip(batch.tokens, batch.columns["mark"], strict=True):
            found[(*tokens.tolist(), int(column[0]) // 100)] = tuple(column.tolist())
        assert [half.tolist() for half in seen.columns["half"]] == [
            (column / 2).tolist() for column in batch.columns["mark"]
        ]
    assert found == expected


def halve(batch: RankBatch, step: int) -> RankBatch:
    return replace(batch, columns={**batch.columns, "half": tuple(one / 2 for one in batch.columns["mark"])})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("too_short", r"has 1 numbers in its column 'mark' for a response of \d+ tokens"),
        ("taken", "has a column 'values': the name is taken"),
        ("sometimes", r"rollout 5 with other columns than the rollouts before it: \['mark'\] are not on all samples"),
    ],
)
def test_columns_that_do_not_fit_are_told(
    scripted_engine: Any, small_run: Make, here: str, name: str, message: str
) -> None:
    with pytest.raises(RolloutError, match=message):
        Collector(small_run(f"rollout.function={here}:{name}"), SOURCE).collect(scripted_engine(answer))
