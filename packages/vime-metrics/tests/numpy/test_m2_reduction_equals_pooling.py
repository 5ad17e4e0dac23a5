"""M2: reducing over ranks equals reducing the pooled data, whatever rank held what.

Each rank draws values for some of the keys, or for none; the oracle sees all values at once.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vime_metrics import (
    Count,
    Histogram,
    Last,
    Max,
    Mean,
    Min,
    Quantiles,
    Rate,
    SimulatedWorld,
    Std,
    Sum,
    TextCounts,
    merge,
)

VALUES = st.one_of(st.floats(-1e6, 1e6), st.integers(-5, 5).map(float))
WEIGHTS = st.one_of(st.just(0.0), st.floats(1e-3, 100))
PAIRS = st.tuples(VALUES, st.integers(0, 3))
DATA = {
    "count": st.lists(VALUES, max_size=6),
    "histogram": st.lists(VALUES, max_size=6),
    "last": st.lists(PAIRS, max_size=3),
    "max": st.lists(VALUES, max_size=6),
    "mean": st.lists(st.tuples(VALUES, WEIGHTS), max_size=6),
    "min": st.lists(VALUES, max_size=6),
    "quantiles": st.lists(VALUES, max_size=6),
    "rate": st.lists(st.tuples(VALUES, st.floats(0.1, 10)), max_size=3),
    "std": st.lists(VALUES, max_size=6),
    "std_unbiased": st.lists(VALUES, max_size=6),
    "sum": st.lists(VALUES, max_size=6),
    "texts": st.lists(st.sampled_from("abc"), max_size=6),
}
RANKS = st.lists(st.fixed_dictionaries({}, optional=DATA), min_size=1, max_size=5)
EDGES = (-1.0, 0.0, 1000.0)


def build(key, data):
    """The metric that one rank makes of its values."""
    columns = [list(column) for column in zip(*data, strict=True)] if data and isinstance(data[0], tuple) else [[], []]
    match key:
        case "mean":
            return Mean.of(columns[0], weights=columns[1])
        case "rate":
            return Rate.of(*columns)
        case "last":
            return sum((Last(value, step) for value, step in data), start=Last.of([]))
        case "histogram":
            return Histogram.of(data, edges=EDGES)
        case "std_unbiased":
            return Std.of(data, unbiased=True)
        case "quantiles":
            return Quantiles.of(data, also=[0.9])
    kinds = {"count": Count, "max": Max, "min": Min, "std": Std, "sum": Sum, "texts": TextCounts}
    return kinds[key].of(data)


def pooled(key, data, oracle):
    """Name to number, from all values of all ranks."""
    match key:
        case "mean":
            return {key: oracle.mean([v for v, _ in data], [w for _, w in data])}
        case "rate":
            amounts, seconds = oracle.sum([a for a, _ in data]), oracle.sum([s for _, s in data])
            return {key: amounts / seconds if seconds else math.nan}
        case "last":
            return {key: oracle.last(data)}
        case "histogram":
            lows, highs = (-math.inf, *EDGES), (*EDGES, math.inf)
            bins = zip(lows, highs, strict=True)
            return {f"{key}/{a:g}..{b:g}": float(sum(a <= value < b for value in data)) for a, b in bins}
        case "quantiles":
            return {f"{key}/p{100 * q:g}": oracle.quantile(data, q) for q in (0.5, 0.9, 0.99)}
        case "texts":
            return {f"{key}/{text}": float(number) for text, number in Counter(data).items()}
        case "std" | "std_unbiased":
            return {key: oracle.std(data, unbiased=key == "std_unbiased")}
        case "max" | "min":
            return {key: {"max": max, "min": min}[key](data, default=math.nan)}
        case "count":
            return {key: float(len(data))}
    return {key: oracle.sum(data)}


def answer(ranks, oracle):
    expected = {}
    for key in sorted({key for rank in ranks for key in rank}):
        expected |= pooled(key, [value for rank in ranks for value in rank.get(key, [])], oracle)
    return expected


def steps_of(ranks):
    return [{key: build(key, data) for key, data in rank.items()} for rank in ranks]


def assert_same(found, expected):
    assert list(found) == sorted(expected)
    for name, value in expected.items():
        assert type(found[name]) is float
        assert found[name] == pytest.approx(value, rel=1e-9, abs=1e-6, nan_ok=True), name


@given(ranks=RANKS)
def test_every_rank_gets_the_numbers_of_the_pooled_data(ranks, oracle):
    world = SimulatedWorld(len(ranks))
    expected = answer(ranks, oracle)
    for _ in range(2):  # the second time nothing has to be agreed on
        for found in world.all_reduce(steps_of(ranks)):
            assert_same(found, expected)


@given(ranks=RANKS, chosen=st.integers(0, 4))
def test_reduce_gives_them_to_one_rank(ranks, chosen, oracle):
    dst = chosen % len(ranks)
    world = SimulatedWorld(len(ranks))
    expected = answer(ranks, oracle)
    for _ in range(2):
        found = world.reduce(steps_of(ranks), group_dst=dst)
        assert [rank for rank, values in enumerate(found) if values is not None] == [dst]
        assert_same(found[dst], expected)


@given(first=RANKS, later=st.data())
def test_any_sequence_of_steps_is_right(first, later, oracle):
    """Keys come and go between steps on every rank independently."""
    world = SimulatedWorld(len(first))
    for ranks in (first, later.draw(st.permutations(first)), [{}] * len(first), first):
        assert_same(world.all_reduce(steps_of(ranks))[0], answer(ranks, oracle))


@given(ranks=RANKS)
def test_merging_in_one_process_is_the_same(ranks, oracle):
    found = {}
    for key, metric in merge(*steps_of(ranks)).items():
        found |= metric.report(key)
    assert_same(dict(sorted(found.items())), answer(ranks, oracle))


@given(ranks=RANKS, copies=st.integers(2, 3))
def test_m4_copies_on_every_rank_of_a_replica_count_once(ranks, copies, oracle):
    """M4: replicated and sharded values are declared, so nothing is counted cp times."""
    replicated = [rank for rank in ranks for _ in range(copies)]
    world = SimulatedWorld(len(replicated))
    assert_same(world.all_reduce(steps_of(replicated), replicas=copies)[0], answer(ranks, oracle))


def test_a_key_may_change_its_kind_between_steps():
    """What the expected plan would send is guessed; a wrong guess must not read a Max as a Mean."""
    world = SimulatedWorld(2)
    for metric, value in [
        (Mean(1, 2), 0.5),
        (Max(7), 7.0),
        (Quantiles.of([3.0]), 3.0),
        (Mean(1, 2), 0.5),
        (Max(7), 7.0),
    ]:
        found = world.all_reduce([{"x": metric}, {}])[1]
        assert next(iter(found.values())) == value


def test_copies_of_a_sketch_count_once():
    """The 0.25 quantile falls between the last 1 and the first 3; with every value twice it would be 1.5."""
    step = {"q": Quantiles.of([1.0] * 513 + [3.0] * 1538, also=[0.25])}
    found = SimulatedWorld(2).all_reduce([step, step], replicas=2)[0]
    assert found["q/p25"] == step["q"].quantile(0.25) == pytest.approx(2.0, rel=1 / 256)


def test_numbers_beyond_fp64_are_infinite_and_leave_numpy_as_it_was():
    before = np.geterr()
    steps = [{"sum": Sum(1e308), "std": Std.of([-1e308]), "max": Max(1)}, {"sum": Sum(1e308), "std": Std.of([1e308])}]
    found = SimulatedWorld(2).all_reduce(steps)[0]
    assert found == {"max": 1.0, "std": math.inf, "sum": math.inf}
    assert np.geterr() == before


SPREAD = st.lists(
    st.tuples(st.one_of(VALUES, st.sampled_from([0.0, 1e-9, -1e-9, 1e-300, 1e12])), st.sampled_from([1, 3, 900, 2048])),
    max_size=4,
)


@given(ranks=st.lists(SPREAD, min_size=1, max_size=4), copies=st.integers(1, 2))
def test_quantiles_beyond_the_exact_size_are_those_of_the_pooled_sketch(ranks, copies):
    """The reduced sketch is the pooled one bit for bit, whether ranks held exact values, sketches or nothing."""
    data = [np.repeat([value for value, _ in rank], [n for _, n in rank]) if rank else np.empty(0) for rank in ranks]
    steps = [{"q": Quantiles.of(values, also=[0.01])} for values in data for _ in range(copies)]
    whole = Quantiles.of(np.concatenate(data), also=[0.01]).report("q")
    for found in SimulatedWorld(len(steps)).all_reduce(steps, replicas=copies):
        assert found == pytest.approx(whole, rel=0, abs=0, nan_ok=True)
