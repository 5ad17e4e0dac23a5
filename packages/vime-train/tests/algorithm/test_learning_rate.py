"""The learning rate counts rollouts: whatever the steps, the same rollouts done give the same rate."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vime_train.algorithm import learning_rate_factor
from vime_train.config import OptimizerSection, RunConfig
from vime_train.rollout import Problem, Rollout, Sample, assemble

sections = st.builds(
    OptimizerSection,
    schedule=st.sampled_from(["constant", "linear", "cosine"]),
    warmup_rollouts=st.integers(0, 50),
    decay_rollouts=st.none() | st.integers(51, 300),
    min_lr=st.sampled_from([0.0, 1e-4]),
)


@given(section=sections)
def test_it_rises_over_the_warm_up_and_never_after_it(section: OptimizerSection) -> None:
    factors = [learning_rate_factor(section, rollouts=done, total=200) for done in range(1, 320)]
    warmup = max(0, section.warmup_rollouts - 1)
    assert all(one < other for one, other in pairwise(factors[:warmup]))
    assert all(one >= other for one, other in pairwise(factors[warmup:]))
    assert max(factors) <= 1
    assert min(factors) > 0 or section.schedule != "constant"


@given(section=sections)
def test_it_ends_at_the_floor_unless_constant(section: OptimizerSection) -> None:
    end = section.decay_rollouts or 200
    last = learning_rate_factor(section, rollouts=end, total=200)
    assert last == pytest.approx(1.0 if section.schedule == "constant" else section.min_lr / section.lr, abs=1e-12)
    assert learning_rate_factor(section, rollouts=end + 100, total=200) == last


def test_halfway_by_hand() -> None:
    cosine = OptimizerSection(schedule="cosine", warmup_rollouts=20)
    assert learning_rate_factor(cosine, rollouts=10, total=220) == 0.5
    assert learning_rate_factor(cosine, rollouts=120, total=220) == pytest.approx(0.5)
    assert learning_rate_factor(cosine, rollouts=70, total=220) == pytest.approx(0.8535534)


def test_rollouts_that_were_left_out_count_too(small_run: Callable[..., RunConfig]) -> None:
    """Half of the groups have no variance: steps train on 8 of 16 rollouts, and the rate moves on by 16."""
    config = small_run()
    problem = Problem(problem_id="p", prompt="", answer="", prompt_tokens=(5,))
    batch = assemble([rollout(number, problem) for number in range(16)], config, iteration=0)
    assert batch.schedule is not None
    assert sum(step.global_batch_size for step in batch.schedule.steps) == 8
    for part in batch.rank_batches:
        assert sum(part.step_rollouts) == 16
        assert len(part.step_rollouts) == len(batch.schedule.steps)


def rollout(number: int, problem: Problem) -> Rollout:
    """Groups of four; rewards differ in every other group."""
    group = number // 4
    reward = float(number % 2 and group % 2)
    sample = Sample(
        tokens=(5, 6, 7),
        response_length=2,
        loss_mask=(1, 1),
        rollout_log_probs=(-1.0, -1.0),
        rollout_id=number,
        group_id=group,
        reward=reward,
        status="completed",
        weight_version=0,
    )
    return Rollout(rollout_id=number, group_id=group, problem=problem, samples=(sample,), reward=reward)
