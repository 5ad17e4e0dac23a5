"""From rollouts to rank batches: nothing lost, nothing twice, weights that no cut can change."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vime_train.config import RunConfig, load_config
from vime_train.plugins import PluginCallError, PluginError
from vime_train.rollout import (
    IterationBatch,
    Problem,
    Rollout,
    Sample,
    assemble,
    split_zero_variance,
    step_sizes,
)

PROBLEM = Problem(problem_id="p", prompt="", answer="", prompt_tokens=(2, 3))


def make_rollout(rollout_id: int, group_id: int, reward: float, lengths: list[int], masked: bool = False) -> Rollout:
    samples = tuple(
        Sample(
            tokens=(2, 3, *range(length)),
            response_length=length,
            loss_mask=(0 if masked else 1,) * length,
            rollout_log_probs=tuple(-0.5 * (place + 1) for place in range(length)),
            rollout_id=rollout_id,
            group_id=group_id,
            reward=reward,
            status="completed",
            weight_version=0,
        )
        for length in lengths
    )
    return Rollout(rollout_id=rollout_id, group_id=group_id, problem=PROBLEM, samples=samples, reward=reward)


def make_batch(seed: int, groups: int, size: int) -> list[Rollout]:
    rng = random.Random(seed)
    return [
        make_rollout(
            group * size + copy,
            group,
            float(rng.random() < 0.5),
            [rng.randint(1, 60) for _ in range(rng.choice([1, 1, 2]))],
            masked=rng.random() < 0.1,
        )
        for group in range(groups)
        for copy in range(size)
    ]


def config(*overrides: str) -> RunConfig:
    return load_config(overrides=["batching.max_tokens_per_gpu=256", "train.global_batch_size=8", *overrides])


def by_sample(batch: IterationBatch) -> dict[tuple[int, int], tuple[Any, ...]]:
    """What the ranks hold, as one dictionary: (rollout, place in it) -> columns."""
    found: dict[tuple[int, int], tuple[Any, ...]] = {}
    place_of: dict[int, int] = {}
    keys = []
    for sample in batch.samples:
        place = place_of.get(sample.rollout_id, 0)
        place_of[sample.rollout_id] = place + 1
        keys.append((sample.rollout_id, place))
    for rank in batch.rank_batches:
        for local, position in enumerate(rank.schedule.partition):
            assert keys[position] not in found
            found[keys[position]] = (
                rank.tokens[local].tolist(),
                rank.response_lengths[local],
                rank.loss_masks[local].tolist(),
                rank.old_log_probs[local].tolist(),
                rank.advantages[local].tolist(),
                rank.weights[local],
            )
    return found


@given(seed=st.integers(0, 10**6), groups=st.integers(1, 6), size=st.integers(2, 5))
def test_what_is_trained_does_not_depend_on_the_layout(seed: int, groups: int, size: int) -> None:
    rollouts = make_batch(seed, groups, size)
    one = assemble(rollouts, config("layout.dp=1"), iteration=3)
    for overrides in (["layout.dp=2"], ["layout.dp=3"], ["layout.dp=2", "layout.cp=2"], ["layout.dp=1", "layout.pp=2"]):
        assert by_sample(assemble(rollouts, config(*overrides), iteration=3)) == by_sample(one)


@given(seed=st.integers(0, 10**6), groups=st.integers(1, 6))
def test_every_surviving_sample_is_on_one_rank(seed: int, groups: int) -> None:
    rollouts = make_batch(seed, groups, 4)
    kept, _ = split_zero_variance(rollouts)
    batch = assemble(rollouts, config("layout.dp=2"), iteration=0)
    expected = {(one.rollout_id, place) for one in kept for place in range(len(one.samples))}
    assert by_sample(batch).keys() == expected


def test_columns_are_those_of_the_samples() -> None:
    rollouts = [make_rollout(0, 0, 1.0, [3, 2]), make_rollout(1, 0, 0.0, [4])]
    held = by_sample(assemble(rollouts, config("layout.dp=1"), iteration=0))
    assert held[0, 1][:4] == ([2, 3, 0, 1], 2, [1.0, 1.0], [-0.5, -1.0])
    assert held[0, 0][4] == [held[0, 1][4][0]] * 3
    assert held[0, 0][4][0] == -held[1, 0][4][0] > 0


@given(
    seed=st.integers(0, 10**6),
    aggregation=st.sampled_from(["rollout_mean", "sample_mean", "token_mean", "prompt_mean"]),
)
def test_weights_are_those_of_the_full_batch(seed: int, aggregation: str) -> None:
    """Dropping zero-variance groups changes no gradient: the same weighted advantages as when they are kept."""
    rollouts = make_batch(seed, 5, 4)
    one_step = ["train.global_batch_size=20", "layout.dp=2", f"algorithm.aggregation={aggregation}"]
    dropped = by_sample(assemble(rollouts, config(*one_step), iteration=0))
    kept = by_sample(assemble(rollouts, config(*one_step, "rollout.drop_zero_variance=false"), iteration=0))
    for key, columns in kept.items():
        advantage, weight = np.asarray(columns[4]), columns[5]
        expected = weight * advantage
        found = dropped[key][5] * np.asarray(dropped[key][4]) if key in dropped else np.zeros_like(expected)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)


def test_mask_sums_are_of_the_whole_step() -> None:
    batch = assemble(make_batch(1, 6, 4), config("layout.dp=3"), iteration=0)
    assert batch.schedule is not None
    for rank in batch.rank_batches:
        assert rank.step_mask_sums == batch.rank_batches[0].step_mask_sums
        assert len(rank.step_mask_sums) == len(batch.schedule.steps)
    total = sum(sum(sample.loss_mask) for sample in batch.samples)
    assert sum(batch.rank_batches[0].step_mask_sums) == total


def test_the_fingerprint_is_the_plans() -> None:
    batch = assemble(make_batch(1, 6, 4), config("layout.dp=2"), iteration=0)
    assert batch.schedule is not None
    assert {rank.fingerprint for rank in batch.rank_batches} == {batch.schedule.fingerprint}


def test_the_order_is_shuffled_anew_in_every_iteration_and_the_same_again() -> None:
    rollouts = make_batch(1, 6, 4)
    orders = [
        [sample.rollout_id for sample in assemble(rollouts, config(), iteration=iteration).samples]
        for iteration in (0, 0, 1)
    ]
    assert orders[0] == orders[1] != orders[2]


def test_nothing_to_learn_from_is_no_plan() -> None:
    """All groups uniform: no micro-batch at all, and the figures say so."""
    rollouts = [make_rollout(place, place // 4, 1.0, [3]) for place in range(8)]
    batch = assemble(rollouts, config(), iteration=0)
    assert (batch.schedule, batch.samples, batch.rank_batches) == (None, (), ())
    assert batch.metrics["rollout/zero_variance_groups"].value == 2
    assert batch.metrics["rollout/trained_share"].value == 0.0
    assert batch.metrics["rollout/reward"].value == 1.0


def test_figures_are_of_all_generated_rollouts() -> None:
    rollouts = [
        make_rollout(0, 0, 1.0, [2, 4]),
        make_rollout(1, 0, 0.0, [6]),
        make_rollout(2, 1, 1.0, [10]),
        make_rollout(3, 1, 1.0, [20]),
    ]
    metrics = assemble(rollouts, config("layout.dp=1"), iteration=0).metrics
    assert metrics["rollout/reward"].value == 0.75
    assert metrics["rollout/samples_per_rollout"].value == 1.25
    assert metrics["response/mean_length"].value == pytest.approx(42 / 5)
    assert (metrics["response/longest"].value, metrics["response/shortest"].value) == (20, 2)
    assert metrics["rollout/trained_share"].value == 0.5
    assert metrics["plan/steps"].value == 1


@given(rollouts=st.integers(0, 200), steps=st.integers(1, 20))
def test_steps_are_spread_evenly(rollouts: int, steps: int) -> None:
    sizes = step_sizes(rollouts, steps)
    assert sum(sizes) == rollouts
    assert len(sizes) == min(rollouts, steps)
    assert not sizes or (min(sizes) >= 1 and max(sizes) - min(sizes) <= 1)


def test_a_step_holds_whole_rollouts() -> None:
    """Siblings stay in one step (law S4)."""
    batch = assemble(make_batch(3, 6, 4), config("layout.dp=2"), iteration=0)
    assert batch.schedule is not None
    step_of: dict[int, int] = {}
    for number, step in enumerate(batch.schedule.steps):
        for rank in step.micro_batches:
            for position in (position for micro_batch in rank for position in micro_batch):
                assert step_of.setdefault(batch.samples[position].rollout_id, number) == number


def constant_advantages(rollouts: list[Rollout], section: object) -> list[list[float]]:
    return [[2.0] * sample.response_length for rollout in rollouts for sample in rollout.samples]


def short_advantages(rollouts: list[Rollout], section: object) -> list[list[float]]:
    return [[2.0]]


def infinite_advantages(rollouts: list[Rollout], section: object) -> list[list[float]]:
    return [[float("inf")] * sample.response_length for rollout in rollouts for sample in rollout.samples]


def failing_advantages(rollouts: list[Rollout], section: object) -> list[list[float]]:
    raise KeyError("no such thing")


def no_advantages() -> None:
    """Takes too little."""


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> str:
    """An import path of this module."""
    import sys

    monkeypatch.setitem(sys.modules, "plugins_of_test_assemble", sys.modules[__name__])
    return "plugins_of_test_assemble"


def test_an_advantage_function_of_the_user_is_used(plugins: str) -> None:
    overrides = [f"algorithm.advantage_function={plugins}:constant_advantages"]
    batch = assemble(make_batch(1, 4, 4), config(*overrides), iteration=0)
    assert {value for rank in batch.rank_batches for array in rank.advantages for value in array} == {2.0}


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("short_advantages", PluginCallError, "one per sample in the order of the rollouts is needed"),
        ("infinite_advantages", PluginCallError, r"not finite for samples \[0, 1"),
        ("failing_advantages", PluginCallError, "raised KeyError: 'no such thing'"),
        ("no_advantages", PluginError, r"takes \(\); it is called as \(rollouts, section\)"),
        ("no_such_function", PluginError, "has no 'no_such_function'"),
    ],
)
def test_an_advantage_function_that_does_not_fit_is_told(
    plugins: str, name: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        assemble(make_batch(1, 4, 4), config(f"algorithm.advantage_function={plugins}:{name}"), iteration=0)
