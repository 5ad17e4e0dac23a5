"""One test per fault of the trainers that this package takes over from: section 3 of the reference study."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vime_metrics import Count, Max, Mean, Recorder, SchemaError, SimulatedWorld, Sum, TextCounts
from vime_metrics.rl import StepCounter, pass_at_k, pass_rates, rollout_statistics, summary, train_step_report


def reduced(*steps, **options):
    return SimulatedWorld(len(steps)).all_reduce(list(steps), **options)[0]


@pytest.mark.parametrize("tokens", [16777217, 100000001, 2**53])
def test_token_counts_beyond_float32(tokens):
    """A float32 vector made 16777216 of 16777217."""
    assert reduced({"tokens": Count(tokens - 1)}, {"tokens": Count(1)}) == {"tokens": float(tokens)}


def test_a_step_without_micro_batches():
    """Keys were taken from micro-batch 0: IndexError where there is none."""
    assert reduced(Recorder().drain(), {"loss": Mean(1, 2)}) == {"loss": 0.5}


def test_keys_of_some_micro_batches_only():
    """Keys of the first micro-batch decided; later ones shifted the vector."""
    recorder = Recorder()
    recorder.add("loss", Mean(2, 1))
    recorder.update({"opd_reverse_kl": Mean(5, 1), "loss": Mean(4, 1)})
    assert reduced(recorder.drain()) == {"loss": 3.0, "opd_reverse_kl": 5.0}


def test_a_conditional_key_misaligned_the_vectors_of_ranks():
    found = reduced({"kl": Sum(1), "opd": Sum(2), "pg": Sum(3)}, {"kl": Sum(10), "pg": Sum(30)})
    assert found == {"kl": 11.0, "opd": 2.0, "pg": 33.0}


def test_what_is_no_token_mean_was_divided_by_tokens():
    """Every metric carries its own denominator, so a clip fraction over sequences stays one."""
    found = reduced({"loss": Mean(30, 10), "clipped_sequences": Mean(1, 2)}, {"clipped_sequences": Mean(0, 2)})
    assert found == {"clipped_sequences": 0.25, "loss": 3.0}


def test_train_steps_collided_when_their_number_varied():
    """rollout_id * num_steps + step_id gave 0, 1, then 1, then 4, 5, 6."""
    counter, steps = StepCounter(), []
    for num_train_steps in (2, 1, 3):
        steps += counter.train_steps_of(num_train_steps)
        counter = counter.after_rollout(num_train_steps)
    assert steps == [0, 1, 2, 3, 4, 5]
    assert StepCounter.from_state_dict(counter.state_dict()) == counter


def test_a_key_that_the_source_rank_lacks():
    """It was dropped silently, and one that others lack was a KeyError on the source."""
    world = SimulatedWorld(2)
    found = world.reduce([{"a": Mean(1, 1)}, {"b": Mean(3, 1)}], group_dst=0)
    assert found == [{"a": 1.0, "b": 3.0}, None]


def test_tuples_are_not_guessed_to_be_sums_and_counts():
    with pytest.raises(SchemaError, match=r"metric 'x' is a tuple \(\(3, 4\)\)"):
        reduced({"x": (3, 4)})


def test_maxima_were_averaged():
    assert reduced({"round/max": Max(4)}, {"round/max": Max(2)}) == {"round/max": 4.0}


def test_entropy_was_cp_times_too_large():
    """One sample of 4 tokens with entropy 1 each, its tokens on 4 CP ranks, one of which holds none: 1.0, not cp."""
    masks = [[1.0, 1.0], [1.0], [], [1.0]]
    steps = [
        train_step_report({"entropy": [sum(mask)]}, tokens=[len(mask)], rollout_tokens=[4], mode="rollout_mean")
        for mask in masks
    ]
    assert reduced(*steps) == {"entropy": 1.0}


def test_columns_of_text():
    """Summing a list of strings failed late; now it fails at once, and texts have a metric."""
    with pytest.raises(ValueError, match="metric 'prompt': Mean values must be real numbers"):
        Recorder().record("prompt", ["a", "b"])
    assert reduced({"finish": TextCounts.of(["stop"])}, {"finish": TextCounts.of(["abort"])}) == {
        "finish/abort": 1.0,
        "finish/stop": 1.0,
    }


def test_empty_columns():
    """An empty list was an IndexError, and statistics of nothing a ValueError."""
    assert all(math.isnan(metric.value) for metric in summary("x", []).values())
    assert math.isnan(rollout_statistics([])["response/length/mean"].value)


def test_pass_rate_of_ragged_groups():
    """The number of samples had to be groups * size exactly."""
    found = pass_rates([1, 0, 1], ["a", "a", "b"])
    assert {name: mean.value for name, mean in found.items()} == {"pass@1": 0.75, "pass@2": 1.0}


def test_pass_rate_counts_what_the_caller_calls_correct():
    """Only a reward of exactly 1 counted."""
    rewards = np.array([0.9, 0.2])
    assert pass_rates(rewards > 0.5, ["a", "a"], ks=[1])["pass@1"].value == 0.5


def test_pass_at_k_of_thousands_of_samples():
    assert pass_at_k(20_000, 1, 10_000) == 0.5


def test_the_clip_ratio_was_always_zero():
    """A response that reaches the limit is clipped; `>` never held."""
    found = rollout_statistics([8, 7], max_response_length=8)
    assert found["response/clipped_ratio"].value == 0.5


def test_an_empty_mask_was_nan():
    """0/0 in one micro-batch made the step NaN."""
    empty = train_step_report({"kl": [0.0]}, tokens=[0], rollout_tokens=[0], mode="rollout_mean")
    whole = train_step_report({"kl": [3.0]}, tokens=[2], rollout_tokens=[2], mode="rollout_mean")
    assert reduced(empty, whole) == {"kl": 1.5}


def test_nan_in_the_padding_of_a_masked_sample():
    """0 * inf of a sample without trainable tokens must not reach the report."""
    found = train_step_report({"kl": [math.nan, 3.0]}, tokens=[0, 2], rollout_tokens=[0, 2], mode="rollout_mean")
    assert reduced(found) == {"kl": 1.5}


def test_a_metric_that_came_out_nan_is_named():
    found = reduced({"grad_norm": Max(math.inf), "loss": Mean(1, 1)})
    assert found["grad_norm/nonfinite"] == 1.0
    assert math.isnan(found["grad_norm"])
    assert found["loss"] == 1.0
