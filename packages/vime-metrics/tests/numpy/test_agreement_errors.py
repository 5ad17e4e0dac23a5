"""What ranks cannot agree on ends in an error that every rank raises, with the rank and the key."""

from __future__ import annotations

import math

import pytest

from vime_metrics import (
    Count,
    Histogram,
    Max,
    Mean,
    MetricError,
    Quantiles,
    ReductionError,
    SchemaError,
    SimulatedWorld,
    Std,
    Sum,
    TextCounts,
)


def refused(steps, text, **options):
    with pytest.raises(SchemaError, match=text):
        SimulatedWorld(len(steps)).all_reduce(steps, **options)


def test_a_type_clash_names_both_ranks_and_the_key():
    refused([{"x": Mean(1, 1)}, {}, {"x": Max(1)}], "metric 'x' is Mean on rank 0 but Max on rank 2: log it the same")


def test_settings_clash():
    refused(
        [{"x": Std()}, {"x": Std(unbiased=True)}],
        r"'x' is Std with \('biased',\) on rank 0 but Std with \('unbiased',\)",
    )
    refused([{"x": Quantiles()}, {"x": Quantiles(also=(0.9,))}], "metric 'x' is Quantiles on rank 0 but Quantiles with")
    refused([{"x": Histogram((0,))}, {"x": Histogram((1,))}], "metric 'x' is Histogram with")


def test_a_value_that_is_no_metric_names_rank_and_key():
    refused([{}, {"x": 0.5}], r"rank 1: metric 'x' is a float \(0\.5\): say how it adds, with one of Count, Histogram")


def test_a_key_that_is_no_text():
    refused([{}, {3: Sum(1)}], "rank 1: metric 3 must be named by a text, not by a int")


def test_strict_names_the_missing_rank_and_the_key():
    refused(
        [{"a": Sum(1), "b": Sum(1)}, {"a": Sum(1)}, {"a": Sum(1), "b": Sum(1)}],
        "metric 'b' is missing on rank 1 while rank 0, 2 has it",
        strict=True,
    )
    assert SimulatedWorld(2).all_reduce([{"a": Sum(1)}] * 2, strict=True)[0] == {"a": 2.0}


def test_two_metrics_under_one_reported_name():
    refused([{"t": Quantiles.of([1.0]), "t/p50": Sum(1)}], "two metrics report as 't/p50'")


def test_different_calls():
    world = SimulatedWorld(2)
    from vime_metrics._reduction import Options, reduction

    everyone = Options.of(group_dst=None, strict=False, nonfinite="keep", replicas=1)
    one = Options.of(group_dst=1, strict=False, nonfinite="keep", replicas=1)
    ranks = [reduction({"a": Sum(1)}, memory, o) for memory, o in zip(world._memories, (everyone, one), strict=True)]
    with pytest.raises(SchemaError, match=r"rank 0 called all_reduce, .* but rank 1 called reduce\(group_dst=1\)"):
        world._lockstep(ranks)


def test_copies_that_are_none():
    refused([{"n": Count(3)}, {"n": Count(4)}], "'n' was declared to have replicas=2, but its 7 values", replicas=2)
    refused([{"n": Std.of([1.0])}, {"n": Std()}], "declared to have replicas=2, but its 1 values", replicas=2)
    refused([{"n": Quantiles.of([1.0])}, {"n": Quantiles()}], "replicas=2, but its 1 values", replicas=2)
    refused([{"n": TextCounts({"a": 1})}, {"n": TextCounts()}], "replicas=2, but its 1 values", replicas=2)
    refused([{"n": Mean(1, 1)}, {}], "'n' is declared with replicas=2 but held by 1 ranks", replicas=2)


def test_replicas_of_some_keys_only():
    steps = [{"sharded": Sum(1), "copied": Sum(5)}, {"sharded": Sum(2), "copied": Sum(5)}]
    assert SimulatedWorld(2).all_reduce(steps, replicas={"copied": 2})[0] == {"copied": 5.0, "sharded": 3.0}


@pytest.mark.parametrize("replicas", [0, -1, {"a": 0}])
def test_replicas_are_at_least_one(replicas):
    with pytest.raises(MetricError, match="replicas counts the copies of a value in the group, at least 1"):
        SimulatedWorld(1).all_reduce([{}], replicas=replicas)


def test_a_rank_outside_the_group():
    with pytest.raises(MetricError, match="group_dst=2 is not a rank of a group of 2: it counts within the group"):
        SimulatedWorld(2).reduce([{}, {}], group_dst=2)


def test_a_rank_that_never_comes():
    with pytest.raises(
        ReductionError, match="rank 1 of the group never came to the reduction of metric 'a' and 1 more"
    ):
        SimulatedWorld(3).all_reduce([{"a": Sum(1)}, None, {"b": Sum(1)}])


def test_a_world_has_ranks_and_a_step_for_each():
    with pytest.raises(MetricError, match="at least 1 rank"):
        SimulatedWorld(0)
    with pytest.raises(MetricError, match="2 ranks need 2 steps, given 1"):
        SimulatedWorld(2).all_reduce([{}])


SPOILED = [{"loss": Mean.of([1.0, math.nan, math.inf]), "n": Sum(1)}, {"loss": Mean.of([3.0]), "n": Sum(1)}]


def test_nonfinite_values_are_kept_counted_and_named():
    found = SimulatedWorld(2).all_reduce(SPOILED)[1]
    assert math.isnan(found["loss"])
    assert found["loss/nonfinite"] == 2.0
    assert found["n"] == 2.0


def test_nonfinite_values_are_dropped_counted_and_named():
    assert SimulatedWorld(2).all_reduce(SPOILED, nonfinite="drop")[1] == {"loss": 2.0, "loss/nonfinite": 2.0, "n": 2.0}


def test_nonfinite_values_are_fatal_with_rank_and_key():
    refused(SPOILED[::-1], r"rank 1: NaN or infinite values in 'loss' \(2\)", nonfinite="error")


def test_nonfinite_values_of_copies_count_once():
    assert SimulatedWorld(2).all_reduce(SPOILED[:1] * 2, replicas=2)[0]["loss/nonfinite"] == 2.0
    found = SimulatedWorld(2).all_reduce([{"x": Sum(math.nan)}, {"x": Sum(1)}], replicas={"x": 2})[0]
    assert found["x/nonfinite"] == 0.5


def test_every_number_of_a_spoiled_distribution_is_kept():
    found = SimulatedWorld(1).all_reduce([{"t": Quantiles.of([1.0, math.nan])}])[0]
    assert math.isnan(found["t/p50"])
    assert math.isnan(found["t/p99"])


def test_a_step_that_recovers_reports_no_count():
    world = SimulatedWorld(2)
    world.all_reduce(SPOILED)
    assert world.all_reduce([{"loss": Mean.of([1.0])}, {"loss": Mean.of([3.0])}])[0] == {"loss": 2.0}


def test_an_unknown_policy_is_refused():
    with pytest.raises(MetricError, match="nonfinite must be 'keep', 'drop' or 'error', given 'skip'"):
        SimulatedWorld(1).all_reduce([{}], nonfinite="skip")


@pytest.mark.parametrize("step", [{"x/nonfinite": Count(1)}, {"x": Sum(1), "x/nonfinite": Count(1)}])
def test_the_name_of_the_count_is_reserved(step):
    refused([step], "metric 'x/nonfinite' ends in '/nonfinite', which is kept for counts of NaN: rename it")


def test_the_name_of_the_count_is_reserved_also_where_it_is_needed():
    refused([{"x": Sum(math.nan), "x/nonfinite": Count(1)}], "'x/nonfinite' has the name under which non-finite")
