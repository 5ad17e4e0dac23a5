"""RL metrics against slow, obvious definitions."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vime_metrics import Mean, MetricError, Recorder, SimulatedWorld, merge
from vime_metrics.rl import (
    StepCounter,
    by_source,
    pass_at_k,
    pass_rates,
    rollout_statistics,
    summary,
    train_step_report,
    zero_variance,
)

VALUES = st.floats(-10, 10)


@st.composite
def batches(draw):
    """Samples as (rollout id, [(value, mask)]): siblings, fully masked samples and empty responses included."""
    token = st.tuples(VALUES, st.integers(0, 1))
    return draw(st.lists(st.tuples(st.integers(0, 3), st.lists(token, max_size=5)), min_size=1, max_size=6))


def whole_numbers(batch):
    """Trainable tokens of the rollout of each sample."""
    totals = {}
    for rollout, tokens in batch:
        totals[rollout] = totals.get(rollout, 0) + sum(mask for _, mask in tokens)
    return [totals[rollout] for rollout, _ in batch]


def expected(batch, mode, num_rollouts=None):
    """The report from all tokens at once, in fractions."""
    groups = {}
    for rollout, tokens in batch:
        groups.setdefault(rollout, []).extend(Fraction(value) for value, mask in tokens if mask)
    if mode == "token_mean":
        groups = {0: [value for group in groups.values() for value in group]}
    means = [sum(group) / len(group) for group in groups.values() if group]
    if num_rollouts:
        return float(sum(means) / num_rollouts)
    return float(sum(means) / len(means)) if means else math.nan


@given(batch=batches(), draw=st.data(), mode=st.sampled_from(["token_mean", "rollout_mean"]), constant=st.booleans())
def test_the_report_is_the_same_for_every_split(batch, draw, mode, constant):
    """Any micro-batches, any DP rank for each, any cut of each sample over CP."""
    dp, cp = draw.draw(st.integers(1, 3)), draw.draw(st.integers(1, 3))
    num_rollouts = 5 if constant and mode == "rollout_mean" else None
    recorders = [Recorder() for _ in range(dp * cp)]
    for (_, tokens), whole in zip(batch, whole_numbers(batch), strict=True):
        replica = draw.draw(st.integers(0, dp - 1))
        cuts = sorted(draw.draw(st.lists(st.integers(0, len(tokens)), min_size=cp - 1, max_size=cp - 1)))
        for rank, (start, stop) in enumerate(zip([0, *cuts], [*cuts, len(tokens)], strict=True)):
            held = tokens[start:stop]
            report = train_step_report(
                {"kl": [sum(value * mask for value, mask in held)]},
                tokens=[sum(mask for _, mask in held)],
                rollout_tokens=[whole],
                mode=mode,
                num_rollouts=num_rollouts,
            )
            recorders[replica * cp + rank].update(report)
    found = SimulatedWorld(dp * cp).all_reduce([recorder.drain() for recorder in recorders])
    assert found[0]["kl"] == pytest.approx(expected(batch, mode, num_rollouts), rel=1e-12, abs=1e-12, nan_ok=True)


def test_the_report_refuses_what_cannot_be():
    with pytest.raises(MetricError, match="mode must be 'token_mean' or 'rollout_mean', given 'mean'"):
        train_step_report({}, tokens=[1], mode="mean")
    with pytest.raises(MetricError, match="rollout_mean needs `rollout_tokens`"):
        train_step_report({}, tokens=[1], mode="rollout_mean")
    with pytest.raises(MetricError, match="sample 1 has 3 trainable tokens but its whole rollout only 2"):
        train_step_report({}, tokens=[1, 3], rollout_tokens=[1, 2], mode="rollout_mean")
    with pytest.raises(MetricError, match="rollout_tokens has 2 values for 1 samples"):
        train_step_report({}, tokens=[1], rollout_tokens=[1, 2], mode="rollout_mean")
    with pytest.raises(MetricError, match="metric 'kl' has 2 sums for 1 samples"):
        train_step_report({"kl": [1, 2]}, tokens=[1], mode="token_mean")
    with pytest.raises(MetricError, match="num_rollouts belongs to mode 'rollout_mean'"):
        train_step_report({}, tokens=[1], mode="token_mean", num_rollouts=3)


@pytest.mark.parametrize("n", range(1, 7))
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_sample(n):
    for correct in range(n + 1):
        for k in range(1, n + 1):
            subsets = list(combinations([True] * correct + [False] * (n - correct), k))
            assert pass_at_k(n, correct, k) == sum(map(any, subsets)) / len(subsets)


def test_pass_at_k_is_unbiased():
    """Its mean over the binomial distribution of correct samples is 1 - (1 - p)^k."""
    n, k, p = 8, 3, Fraction(3, 10)
    mean = sum(
        math.comb(n, c) * p**c * (1 - p) ** (n - c) * Fraction(pass_at_k(n, c, k)).limit_denominator(1000)
        for c in range(n + 1)
    )
    assert mean == 1 - (1 - p) ** k


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, -1, 1), (4, 1, 5), (4, 1, 0)])
def test_pass_at_k_refuses_what_cannot_be(n, c, k):
    with pytest.raises(MetricError, match="pass"):
        pass_at_k(n, c, k)


def test_small_groups_say_nothing_about_a_large_k():
    rates = pass_rates([1, 0, 0, 0, 0], ["a", "b", "b", "b", "b"], ks=[4, 1])
    assert list(rates.items()) == [("pass@1", Mean(1.0, 2.0)), ("pass@4", Mean(0.0, 1.0))]


def test_groups_on_different_ranks_pool():
    flags, groups = [1, 0, 1, 1, 0, 0], ["a", "a", "b", "b", "c", "c"]
    split = [pass_rates(flags[:2], groups[:2]), pass_rates(flags[2:], groups[2:])]
    assert merge(*split) == pass_rates(flags, groups)


def test_one_group_id_per_sample():
    with pytest.raises(MetricError, match="2 values but 1 group ids"):
        pass_rates([1, 0], ["a"])


def test_zero_variance_groups_by_reward():
    found = zero_variance([1, 1, 0, 0, 0.25, 0.25, 1, 0, 5], list("aabbccdde"))
    assert found["zero_variance/ratio"] == Mean(3.0, 4.0)
    assert found["zero_variance/reward"].report("r") == {"r/0.0": 1.0, "r/0.2": 1.0, "r/1.0": 1.0}


def test_negative_zero_is_zero():
    assert zero_variance([-0.0, 0.0], "aa")["zero_variance/reward"].report("r") == {"r/0.0": 1.0}


def test_rollout_statistics_of_everything():
    found = rollout_statistics(
        [10, 20, 30, 40],
        rewards=[0, 1, 1, 0],
        truncated=[0, 0, 1, 1],
        trainable_tokens=[10, 0, 15, 40],
        max_response_length=40,
    )
    values = {name: metric.value for name, metric in found.items()}
    assert values["response/length"] == values["response/length/mean"] == 25.0
    assert values["response/truncated_ratio"] == 0.5
    assert values["response/clipped_ratio"] == 0.25
    assert values["response/masked_ratio"] == 0.35
    assert values["response/fully_masked_ratio"] == 0.25
    assert values["reward/std"] == 0.5


def test_columns_of_a_rollout_have_one_length():
    with pytest.raises(MetricError, match="rewards has 1 values for 2 samples"):
        rollout_statistics([1, 2], rewards=[1])


def test_sources_that_only_some_ranks_have():
    rewards = [np.array([1.0, 0.0]), np.array([1.0, 1.0, 0.0])]
    sources = [["math", "code"], ["math", "math", "web"]]
    steps = [
        by_source(names, lambda at, values=values: {"reward": Mean.of(values[at])})
        for names, values in zip(sources, rewards, strict=True)
    ]
    assert SimulatedWorld(2).all_reduce(steps)[0] == {
        "source/code/reward": 0.0,
        "source/math/reward": 1.0,
        "source/web/reward": 0.0,
    }


def test_summaries_pool():
    assert merge(summary("x", [1.0, 2.0]), summary("x", [6.0])) == summary("x", [1.0, 2.0, 6.0])


@given(st.lists(st.integers(0, 5), min_size=1))
def test_steps_only_grow(numbers):
    counter, steps = StepCounter(), []
    for number in numbers:
        steps += counter.train_steps_of(number)
        counter = counter.after_rollout(number)
    assert steps == list(range(sum(numbers)))
    assert counter == StepCounter(rollout_step=len(numbers), train_step=sum(numbers))


def test_steps_are_not_negative():
    with pytest.raises(MetricError, match="counted from 0"):
        StepCounter(train_step=-1)
    with pytest.raises(MetricError, match="at least 0 optimizer steps"):
        StepCounter().after_rollout(-1)
