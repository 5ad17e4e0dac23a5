"""Quantiles: exact up to a size, then a sketch whose error bound is stated and whose memory does not grow."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vime_metrics import MetricError, Quantiles
from vime_metrics._quantiles import EXACT_SIZE
from vime_metrics._sketch import RELATIVE_ERROR, Sketch, bucket_of, middle_of

SHARES = (0.0, 0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0)


def shapes():
    draw = np.random.default_rng(7)
    lognormal = draw.lognormal(7.6, 1.6, 50_000)
    return {
        "lognormal": lognormal,
        "lognormal, both signs": lognormal * draw.choice([-1, 1], lognormal.size),
        "spike at the cap": np.minimum(lognormal, 4096.0),
        "spike and tail": np.concatenate([np.full(40_000, 0.7), lognormal]),
        "two spikes": np.repeat([1.0, 1e6], 20_000),
        "zeros": np.concatenate([np.zeros(30_000), lognormal]),
        "one value": np.full(10_000, -3.3),
        "tiny and huge": draw.choice([5e-324, 1e-300, 1.0, 1e300, 1.7e308], 10_000),
        "integers": draw.integers(-3, 4, 10_000).astype(float),
    }


@pytest.mark.parametrize("values", shapes().values(), ids=shapes().keys())
def test_the_error_bound_holds(values):
    """Within 1/256 of the order statistics that the exact answer interpolates."""
    ordered = np.sort(values)
    found = Quantiles.of(values)
    for q in SHARES:
        position = q * (values.size - 1)
        low, high = ordered[math.floor(position)], ordered[math.ceil(position)]
        part = position - math.floor(position)
        exact = low + (high - low) * part
        slack = RELATIVE_ERROR * ((1 - part) * abs(low) + part * abs(high)) + 2.0**-1030
        assert abs(found.quantile(q) - exact) <= slack * (1 + 1e-12), q


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_middle_of_a_bucket_is_near_each_of_its_values(value):
    array = np.array([value])
    middle = float(middle_of(bucket_of(array))[0])
    bound = RELATIVE_ERROR * abs(value) if abs(value) >= 2.0**-1022 else 2.0**-1030
    assert math.isfinite(middle)
    assert abs(middle - value) <= bound


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2))
def test_buckets_are_ordered_like_values(values):
    ordered = np.sort(np.array(values) + 0.0)
    assert (np.diff(bucket_of(ordered)) >= 0).all()


def test_extremes_and_spikes_are_not_blurred_past_the_data():
    found = Quantiles.of(np.full(10_000, 1000.3))
    assert found.quantile(0.0) == found.quantile(0.5) == found.quantile(1.0) == 1000.3


def test_exact_up_to_the_size_and_a_sketch_from_there():
    values = np.random.default_rng(0).normal(size=EXACT_SIZE + 1)
    assert Quantiles.of(values[:-1]).sketch is None
    assert Quantiles.of(values[:-1]).quantile(0.3) == pytest.approx(np.quantile(values[:-1], 0.3), rel=1e-15)
    assert Quantiles.of(values).exact.size == 0
    assert Quantiles.of(values).count == EXACT_SIZE + 1


@pytest.mark.parametrize("q", SHARES)
def test_quantiles_of_few_values_are_those_of_numpy(q):
    values = np.random.default_rng(1).normal(size=101)
    assert Quantiles.of(values).quantile(q) == pytest.approx(np.quantile(values, q), rel=1e-14)


def test_memory_is_bounded_by_the_buckets_not_by_the_values():
    values = np.random.default_rng(2).lognormal(7.6, 1.6, 4_000_000)
    tracemalloc.start()
    found = Quantiles.of(values)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.sketch.buckets.size < 4000
    assert peak < 16 * 2**20 < values.nbytes / 1.9


def test_a_decade_fills_at_most_426_buckets():
    assert Sketch.of(np.geomspace(1, 10, 100_000, endpoint=False)).buckets.size <= 426


def test_merging_many_sketches_counts_every_value():
    parts = [Quantiles.of(np.random.default_rng(seed).normal(size=3000)) for seed in range(20)]
    whole = Quantiles.of(np.concatenate([np.random.default_rng(seed).normal(size=3000) for seed in range(20)]))
    assert sum(parts, start=Quantiles()) == whole
    assert whole.count == 60_000


@pytest.mark.parametrize("q", [-0.1, 1.1, 99])
def test_a_quantile_is_a_share(q):
    with pytest.raises(MetricError, match=r"between 0 and 1.*write 0\.99 for the 99th percentile"):
        Quantiles.of([1.0]).quantile(q)
    with pytest.raises(MetricError, match="between 0 and 1"):
        Quantiles.of([1.0], also=[q])


def test_names_say_the_percentile():
    assert list(Quantiles.of([1.0], also=[0.999, 0.05]).report("t")) == ["t/p5", "t/p50", "t/p99", "t/p99.9"]
