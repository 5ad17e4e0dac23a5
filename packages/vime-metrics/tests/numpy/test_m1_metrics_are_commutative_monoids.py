"""M1: a metric is a commutative monoid: a + b == b + a, (a + b) + c == a + (b + c), the empty metric adds nothing."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vime_metrics import Count, Histogram, Last, Max, Mean, Min, Quantiles, Rate, Std, Sum, TextCounts

REALS = st.floats(-1e100, 1e100)
WHOLE = st.integers(-(2**30), 2**30).map(float)
WITH_SPECIALS = st.one_of(REALS, st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, -1e-310]))


def lists(values, max_size=8):
    return st.lists(values, max_size=max_size)


@st.composite
def quantiles(draw, values=WITH_SPECIALS):
    """From nothing to several times the exact size, so that merging crosses it."""
    distinct = draw(lists(values, 6))
    repeats = draw(st.lists(st.sampled_from([1, 2, 700, 2047, 3000]), min_size=len(distinct), max_size=len(distinct)))
    return Quantiles.of(np.repeat(distinct, repeats) if distinct else [], also=[0.25])


@st.composite
def lasts(draw, values):
    found = draw(values)
    return Last(found, step=draw(st.integers(0, 3))) if draw(st.booleans()) else Last.of([])


EXACT = {
    "Count": lists(WITH_SPECIALS).map(Count.of),
    "Max": lists(WITH_SPECIALS).map(Max.of),
    "Min": lists(WITH_SPECIALS).map(Min.of),
    "Histogram": lists(WITH_SPECIALS).map(lambda values: Histogram.of(values, edges=[-1, 0, 1e50])),
    "TextCounts": st.lists(st.sampled_from(["stop", "length", "", "é"])).map(TextCounts.of),
    "Quantiles": quantiles(),
    "Sum of whole numbers": lists(WHOLE).map(Sum.of),
    "Mean of whole numbers": lists(WHOLE).map(Mean.of),
    "Rate of whole numbers": st.builds(Rate, WHOLE, st.integers(0, 1000)),
    "Last of whole numbers": lasts(WHOLE),
}
ROUNDED = {
    "Sum": lists(WITH_SPECIALS).map(Sum.of),
    "Mean": lists(WITH_SPECIALS).map(Mean.of),
    "Rate": st.builds(Rate, REALS, st.floats(0, 1e6)),
    "Last": lasts(REALS),
    "Std": lists(WITH_SPECIALS).map(Std.of),
    "unbiased Std": lists(WITH_SPECIALS).map(lambda values: Std.of(values, unbiased=True)),
}
ALL = EXACT | ROUNDED


def kinds(table):
    return pytest.mark.parametrize("metrics", table.values(), ids=table.keys())


@kinds(ALL)
def test_addition_commutes_bit_for_bit(metrics):
    @given(metrics, metrics)
    def law(a, b):
        assert a + b == b + a

    law()


@kinds(ALL)
def test_the_empty_metric_adds_nothing(metrics):
    @given(metrics)
    def law(a):
        assert a + a.empty == a
        assert a.empty + a == a

    law()


@kinds(EXACT)
def test_addition_is_associative_bit_for_bit(metrics):
    @given(metrics, metrics, metrics)
    def law(a, b, c):
        assert (a + b) + c == a + (b + c)

    law()


@kinds(ROUNDED)
def test_addition_of_reals_is_associative_to_rounding(metrics):
    @given(metrics, metrics, metrics)
    def law(a, b, c):
        scale = max(scale_of(metric) for metric in (a, b, c))
        for one, other in zip(fields((a + b) + c), fields(a + (b + c)), strict=True):
            assert one == pytest.approx(other, rel=1e-12, abs=1e-13 * scale)

    law()


def fields(metric):
    return [getattr(metric, field.name) for field in dataclasses.fields(metric)]


def scale_of(metric):
    """The magnitude at which rounding happens: for Std that of squares."""
    largest = max(abs(float(value)) for value in fields(metric))
    return largest * largest * metric.count if isinstance(metric, Std) else largest


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        (Sum(), 0.0),
        (Count(), 0.0),
        (TextCounts(), 0.0),
        (Histogram(edges=(0.0,)), 0.0),
        (Mean(), math.nan),
        (Rate(), math.nan),
        (Max(), math.nan),
        (Min(), math.nan),
        (Std(), math.nan),
        (Std(unbiased=True), math.nan),
        (Quantiles(), math.nan),
        (Last.of([]), math.nan),
    ],
    ids=repr,
)
def test_the_value_of_nothing_is_stated(metric, value):
    assert metric == metric.empty
    assert metric.value == pytest.approx(value, nan_ok=True)
    assert type(metric.value) is float
