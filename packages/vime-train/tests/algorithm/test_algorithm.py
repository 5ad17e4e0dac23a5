"""What the configuration names, against hand-worked numbers and obvious sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vime_cp import pack_micro_batch
from vime_schedule import ParallelLayout, TokenBudget, build_dp_schedule
from vime_train.algorithm import advantages, policy_terms, step_weights
from vime_train.config import AlgorithmSection
from vime_train.rollout import Problem, Rollout, Sample

PROBLEM = Problem(problem_id="p", prompt="", answer="", prompt_tokens=())


def rollout(number: int, group: int, reward: float, masks: Sequence[Sequence[int]]) -> Rollout:
    samples = tuple(
        Sample(
            tokens=(5, *[7] * len(mask)),
            response_length=len(mask),
            loss_mask=tuple(mask),
            rollout_log_probs=(0.0,) * len(mask),
            rollout_id=number,
            group_id=group,
            reward=reward,
            status="completed",
            weight_version=0,
        )
        for mask in masks
    )
    return Rollout(rollout_id=number, group_id=group, problem=PROBLEM, samples=samples, reward=reward)


@pytest.fixture(scope="session")
def planned() -> Callable[..., object]:
    def make(rollouts: Sequence[Rollout], steps: list[int], dp: int = 1) -> object:
        samples = [sample for each in rollouts for sample in each.samples]
        schedule = build_dp_schedule(
            [len(sample.tokens) for sample in samples],
            layout=ParallelLayout(dp=dp),
            batching=TokenBudget(max_tokens_per_gpu=64),
            global_batch_size=steps,
            rollout_ids=[sample.rollout_id for sample in samples],
            shortage="fill",
        )
        return schedule, samples

    return make


def test_siblings_count_once_in_their_group_and_share_the_advantage() -> None:
    """Fan-out rollouts must not weigh the group's mean by their number of samples."""
    batch = [
        rollout(10, 0, 0.0, [[1, 1]]),
        rollout(11, 0, 1.0, [[1], [1, 1, 1], [1]]),
        rollout(20, 1, 2.0, [[1], [1]]),
        rollout(21, 1, 4.0, [[1, 0]]),
    ]
    found = advantages(batch, AlgorithmSection(divide_by_std=False))
    assert [column.tolist() for column in found] == [
        [-0.5, -0.5], [0.5], [0.5, 0.5, 0.5], [0.5], [-1.0], [-1.0], [1.0, 1.0],
    ]  # fmt: skip
    assert {column.dtype for column in found} == {np.dtype(np.float32)}


def test_the_standard_deviation_is_that_of_rollouts() -> None:
    batch = [rollout(0, 0, 0.0, [[1]]), rollout(1, 0, 1.0, [[1], [1]])]
    scale = 1 / (np.sqrt(0.5) + 1e-6)
    np.testing.assert_allclose(
        np.concatenate(advantages(batch, AlgorithmSection())), [-0.5 * scale, *[0.5 * scale] * 2]
    )


def test_a_group_without_variance_has_advantage_zero() -> None:
    batch = [rollout(0, 0, 0.7, [[1, 1]]), rollout(1, 0, 0.7, [[1]]), rollout(2, 1, 0.3, [[1]])]
    assert not np.concatenate(advantages(batch, AlgorithmSection())).any()


def test_rollout_mean_by_hand(planned: Callable[..., object]) -> None:
    """Rollout a = {3 tokens, 1 token}, b = {2 tokens}: 1/(2*4), 1/(2*4), 1/(2*2)."""
    schedule, samples = planned([rollout(0, 0, 1.0, [[1, 1, 1], [1]]), rollout(1, 0, 0.0, [[1, 1, 0]])], [2])
    assert step_weights(schedule, samples, AlgorithmSection()).tolist() == [0.125, 0.125, 0.25]


mask = st.lists(st.integers(0, 1), min_size=1, max_size=5)
batches = st.lists(st.lists(mask, min_size=1, max_size=3), min_size=2, max_size=8)


aggregations = st.sampled_from(["rollout_mean", "sample_mean", "token_mean", "prompt_mean"])


@given(masks=batches, dp=st.sampled_from([1, 2, 3]), aggregation=aggregations)
def test_the_weights_of_a_step_make_a_mean_whatever_the_plan(
    masks: list[list[list[int]]], dp: int, aggregation: str, planned: Callable[..., object]
) -> None:
    """With a loss of 1 on every token each step's loss is 1, or 0 where every token is masked."""
    batch = [rollout(number, number // 2, 0.0, each) for number, each in enumerate(masks)]
    steps = [len(batch) // 2, len(batch) - len(batch) // 2]
    schedule, samples = planned(batch, steps, dp)
    weights = step_weights(schedule, samples, AlgorithmSection(aggregation=aggregation))
    for step in schedule.steps:
        members = [position for rank in step.micro_batches for cut in rank for position in cut]
        total = sum(weights[position] * sum(samples[position].loss_mask) for position in members)
        trained = any(sum(samples[position].loss_mask) for position in members)
        assert total == pytest.approx(1.0 if trained else 0.0)


def test_the_policy_loss_clips_as_configured() -> None:
    packed = pack_micro_batch([torch.tensor([5, 6, 7, 8])], [3], [torch.tensor([1.0, 1.0, 0.0])])
    ones = torch.ones(packed.local_length)
    terms = policy_terms(
        AlgorithmSection(clip_low=0.1, clip_high=0.5),
        log_probs=torch.log(torch.tensor([1.4, 1.6, 9.0, 1.0])),
        old_log_probs=torch.zeros(4),
        advantages=ones,
        packed=packed,
    )
    torch.testing.assert_close(terms.loss, torch.tensor([-1.4, -1.5, 0.0, 0.0]))
    assert terms.clipped.tolist() == [False, True, False, False]
