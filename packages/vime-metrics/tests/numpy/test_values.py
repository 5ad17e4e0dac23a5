"""What metrics accept, refuse, count and answer."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest

from vime_metrics import (
    Count,
    Histogram,
    Last,
    Max,
    Mean,
    MetricError,
    Min,
    Quantiles,
    Rate,
    Std,
    Sum,
    TextCounts,
    merge,
)


def test_m3_counts_are_exact_to_two_to_the_53():
    assert (Count(2**53 - 1) + Count(1)).value == 2**53
    assert Count(2**53 - 1).value == 9007199254740991.0


def test_m3_counts_that_fp64_cannot_hold_are_refused():
    with pytest.raises(MetricError, match=r"whole number from 0 to 2\*\*53"):
        Count(2**53 + 1)
    with pytest.raises(MetricError, match=r"2\*\*53"):
        Count(2**53) + Count(1)


def test_m3_variance_never_cancels():
    assert Std.of([1e8, 1e8 + 1]).value == 0.5
    assert (Std.of([1e8]) + Std.of([1e8 + 1])).value == 0.5
    assert Std.of([1e15, 1e15 + 2], unbiased=True).value == pytest.approx(math.sqrt(2))


def test_weights_are_what_the_mean_is_over():
    assert Mean.of([0.7, 0.3], weights=[1, 0]).value == 0.7
    assert Mean.of([]).value != Mean.of([]).value
    assert Mean.of([3.0, math.nan], weights=[1, 0]) == Mean(3.0, 1.0)


@pytest.mark.parametrize("kind", [Sum, Mean, Max, Min, Std, Quantiles, Last], ids=lambda kind: kind.__name__)
def test_nonfinite_values_are_counted_and_left_out(kind):
    last = [2.0] if kind is Last else [math.nan, 2.0, math.inf, -math.inf]
    metric = kind.of(last) if kind is not Last else Last(math.nan) + Last(math.inf) + Last(-math.inf) + Last(2.0)
    assert metric.nonfinite == 3
    assert math.isnan(metric.value)
    assert metric.finite.value == (0.0 if kind is Std else 2.0)


def test_nonfinite_numbers_of_a_pair_spoil_neither_part():
    assert Mean(math.nan, 5.0).nonfinite == 1
    assert Mean(math.nan, 5.0).finite == Mean()
    assert Rate(math.inf, 2.0).finite == Rate()


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_bad_weights_are_refused(weight):
    with pytest.raises(MetricError, match=r"Mean\.weight must be finite and at least 0"):
        Mean(1.0, weight)
    with pytest.raises(MetricError, match=r"weights\[1\] is"):
        Mean.of([1.0, 2.0], weights=[1.0, weight])
    with pytest.raises(MetricError, match=r"Rate\.seconds must be finite"):
        Rate(1.0, weight)


def test_a_total_without_weight_is_refused():
    with pytest.raises(MetricError, match=r"Mean\.total is 3\.0 but its weight is 0"):
        Mean(3.0, 0)


def test_one_weight_per_value():
    with pytest.raises(MetricError, match="2 values but 3 weights"):
        Mean.of([1, 2], weights=[1, 2, 3])


@pytest.mark.parametrize("thing", ["1.5", b"1", None, [1, 2], 1j, pytest.param(object(), id="object")], ids=repr)
def test_what_is_no_number_is_refused(thing):
    with pytest.raises(MetricError, match="must be"):
        Max(thing)
    with pytest.raises(MetricError, match="must be"):
        Mean(thing, 1)


@pytest.mark.parametrize("things", [["a"], [None], [1j], "text"], ids=repr)
def test_arrays_of_what_is_no_number_are_refused(things):
    with pytest.raises(MetricError, match="must be real numbers"):
        Sum.of(things)


@pytest.mark.parametrize("number", [2, 2.0, np.float32(2), np.int64(2), np.array(2.0), np.array([2.0]), Decimal(2)])
def test_any_real_number_is_accepted(number):
    assert Sum(number).value == 2.0
    assert type(Sum(number).total) is float


@pytest.mark.parametrize(
    "values", [[1, 2, 3], (1, 2, 3), np.array([[1], [2], [3]]), np.array([1, 2, 3], np.float32), range(1, 4)], ids=repr
)
def test_any_array_is_accepted(values):
    assert Sum.of(values).value == 6.0


def test_flags_are_ones_and_zeros():
    assert Mean.of([True, False, True, True]).value == 0.75


@pytest.mark.parametrize("number", [-1, 1.5, "3"])
def test_counts_are_whole(number):
    with pytest.raises(MetricError, match="must be"):
        Count(number)


def test_only_metrics_of_one_kind_add():
    with pytest.raises(MetricError, match="cannot add Max to Mean"):
        Mean(1, 1) + Max(1)
    with pytest.raises(MetricError, match="cannot add a biased to an unbiased Std"):
        Std.of([1.0]) + Std.of([1.0], unbiased=True)
    with pytest.raises(MetricError, match="cannot add Histograms with edges"):
        Histogram(edges=(0,)) + Histogram(edges=(1,))
    with pytest.raises(MetricError, match="give every rank the same `also`"):
        Quantiles() + Quantiles(also=(0.9,))


def test_merging_names_the_key():
    with pytest.raises(MetricError, match="metric 'loss': cannot add Max to Mean"):
        merge({"loss": Mean(1, 1)}, {"loss": Max(1)})
    with pytest.raises(MetricError, match=r"metric 'loss' is a float \(0\.5\): say how it adds"):
        merge({"loss": 0.5})


@pytest.mark.parametrize("edges", [[], [1, 1], [2, 1], [0, math.inf], [math.nan]])
def test_histogram_edges_ascend(edges):
    with pytest.raises(MetricError, match="finite and strictly ascending"):
        Histogram.of([1.0], edges=edges)


def test_histogram_bins_are_closed_below():
    assert Histogram.of([-1, 0, 5, 10, 11], edges=[0, 10]).counts == (1, 2, 2)


def test_a_histogram_has_one_count_per_bin():
    with pytest.raises(MetricError, match="1 edges and so 2 bins, given 3 counts"):
        Histogram(edges=(0,), counts=(1, 2, 3))


def test_texts_have_shares():
    counts = TextCounts.of(["stop", "stop", "length", "stop"])
    assert counts.share("stop") == 0.75
    assert counts.share("abort") == 0.0
    assert math.isnan(TextCounts().share("stop"))


@pytest.mark.parametrize("thing", [3, None, ("a",)], ids=repr)
def test_only_texts_are_counted_as_texts(thing):
    with pytest.raises(MetricError, match="TextCounts counts texts, given"):
        TextCounts.of(["stop", thing])


def test_last_takes_the_highest_step_and_averages_ties():
    assert (Last(1.0, step=3) + Last(5.0, step=2)).value == 1.0
    assert (Last(1.0, step=3) + Last(5.0, step=3)).value == 3.0
    assert Last.of([1.0, 2.0, 7.0], step=4) == Last(7.0, step=4)


def test_rates_of_ranks_side_by_side_are_per_rank():
    assert (Rate(100, 2.0) + Rate(300, 2.0)).value == 100.0


def test_metrics_are_frozen():
    with pytest.raises(AttributeError):
        Mean(1, 1).total = 2.0  # type: ignore[misc]
