"""One test per metric fault that users of other trainers reported: the M-cases of the survey, with the wrong number."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vime_metrics import Count, Max, Mean, Min, Recorder, SchemaError, SimulatedWorld, Std, Sum
from vime_metrics.rl import rollout_statistics


def reduced(*steps, **options):
    """The numbers on the last rank."""
    return SimulatedWorld(len(steps)).all_reduce(list(steps), **options)[-1]


def test_case_m1_mean_of_means():
    """Losses 3/12 and 3/4 were averaged to 0.5."""
    assert reduced({"loss": Mean(3, 12)}, {"loss": Mean(3, 4)}) == {"loss": 0.375}


def test_case_m2_mean_of_maxima():
    """Rank maxima 10 and 2 became 6."""
    steps = [rollout_statistics(lengths) for lengths in ([10, 1], [2, 2])]
    found = reduced(*steps)
    assert (found["response/length/max"], found["response/length/min"]) == (10.0, 1.0)


def test_case_m2_a_name_decides_nothing():
    """A substring rule reduced `minmax_diff` and `mini_batch` with min."""
    found = reduced({"minmax_diff": Mean(4, 2), "max_x": Min(3)}, {"minmax_diff": Mean(2, 1), "max_x": Min(1)})
    assert found == {"minmax_diff": 2.0, "max_x": 1.0}


def test_case_m4_ranks_of_unequal_size():
    """0.8 over 100 samples and 0.6 over 200 became 0.7."""
    found = reduced({"acc": Mean(0.8 * 100, 100)}, {"acc": Mean(0.6 * 200, 200)})
    assert found["acc"] == pytest.approx(2 / 3)


def test_case_m5_a_rank_without_metrics_hung():
    """A rank whose samples were all masked emitted {} and the others waited for it."""
    assert reduced({"loss": Mean(3, 12)}, {}) == {"loss": 0.25}
    assert reduced({}, {}) == {}


def test_case_m6_key_sets_differ_by_rank():
    assert reduced({"a": Mean(1, 2)}, {"b": Max(3)}) == {"a": 0.5, "b": 3.0}


def test_case_m7_a_missing_key_changed_the_number_of_collectives():
    world = SimulatedWorld(3)
    steps = [{"a": Std.of([1.0, 3.0]), "b": Min(1)}, {"b": Min(0), "c": Count(2)}, {}]
    for _ in range(2):
        assert world.all_reduce(steps)[2] == {"a": 1.0, "b": 0.0, "c": 2.0}
    assert len(world.collectives) == 3


def test_case_m7_reporting_twice_is_safe():
    """Exporting popped the denominators, so the second export failed."""
    step = {"loss": Mean(3, 12)}
    world = SimulatedWorld(1)
    assert world.all_reduce([step]) == world.all_reduce([step]) == [{"loss": 0.25}]


def test_case_m8_an_unlisted_metric_was_summed():
    """[0.5, 0.5] became 1.0: here the kind is part of the value, and a bare number is refused."""
    recorder = Recorder()
    recorder.record("ratio", [0.5, 0.5])
    assert recorder.drain()["ratio"].value == 0.5
    with pytest.raises(SchemaError, match="metric 'ratio' is a float"):
        reduced({"ratio": 0.5})


def test_case_m9_the_unweighted_reward_was_logged():
    """0.7 with weight 1 and 0.3 with weight 0 were logged as 1.0."""
    assert Mean.of([0.7, 0.3], weights=[1, 0]).value == 0.7


def test_case_m11_samples_that_pad_the_batch():
    """Three real rewards and a copied row of reward 1."""
    found = rollout_statistics([5, 5, 5, 5], rewards=[0, 0, 0, 1], real=[True, True, True, False])
    assert found["reward/mean"].value == 0.0
    assert found["reward/max"].value == 0.0
    assert found["response/length/mean"].weight == 3.0


def test_case_m12_cp_copies_counted_cp_times():
    """The same sum on both CP ranks."""
    step = {"tokens": Sum(7), "samples": Count(3), "reward/std": Std.of([0.0, 1.0, 1.0], unbiased=True)}
    found = reduced(step, step, replicas=2)
    assert found["tokens"] == 7.0
    assert found["samples"] == 3.0
    assert found["reward/std"] == pytest.approx(np.std([0, 1, 1], ddof=1))


def test_case_m14_ranks_with_different_numbers_of_micro_batches():
    """Two values on one rank and three on the other raised ValueError."""
    recorders = [Recorder(), Recorder()]
    for recorder, losses in zip(recorders, [(1.0, 2.0), (3.0, 4.0, 5.0)], strict=True):
        for loss in losses:
            recorder.record("loss", loss)
    assert reduced(*(recorder.drain() for recorder in recorders)) == {"loss": 3.0}


def test_case_m16_the_denominator_is_declared():
    """Balance counted experts that no token reached; here the weight says what is in the mean."""
    tokens = np.array([4.0, 0.0, 2.0])
    assert Mean.of(tokens, weights=tokens > 0).value == 3.0
    assert Mean.of(tokens).value == 2.0


def test_case_m17_the_error_tells_who_and_what():
    with pytest.raises(SchemaError, match="metric 'loss' is missing on rank 1 while rank 0, 2 has it"):
        reduced({"loss": Sum(1)}, {}, {"loss": Sum(1)}, strict=True)


def test_variance_by_cancellation():
    """[1e8, 1e8 + 1] had standard deviation 0."""
    assert reduced({"x": Std.of([1e8])}, {"x": Std.of([1e8 + 1])}) == {"x": 0.5}


def test_percentile_of_percentiles():
    """p50 of the ranks' p50 is not the median: here 1, 1, 1 and 9, 9, 9, 9, 9."""
    from vime_metrics import Quantiles

    assert reduced({"t": Quantiles.of([1] * 3)}, {"t": Quantiles.of([9] * 5)})["t/p50"] == 9.0


def test_a_mean_over_nothing_is_nan_not_zero():
    assert math.isnan(reduced({"x": Mean()}, {"x": Mean()})["x"])
