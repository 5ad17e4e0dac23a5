"""The baselines do what their papers say, and lose nothing on the way."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vime_schedule import ParallelLayout, ScheduleError
from vime_schedule._baselines import arrival_first_fit, first_fit_decreasing, two_level_karmarkar_karp
from vime_schedule._baselines._first_fit import _first_fit
from vime_schedule._baselines._karmarkar_karp import karmarkar_karp
from vime_schedule._baselines._problem import StepProblem

BASELINES = (arrival_first_fit, first_fit_decreasing, two_level_karmarkar_karp)


def problem(shares: list[int], capacity: int, layout: ParallelLayout) -> StepProblem:
    costs = [float(share * share) for share in shares]
    return StepProblem(positions=range(len(shares)), shares=shares, costs=costs, capacity=capacity, layout=layout)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40))
def test_first_fit_is_the_quadratic_first_fit(shares: list[int]) -> None:
    bins: list[list[int]] = []
    for position, share in enumerate(shares):
        for members in bins:
            if sum(shares[p] for p in members) + share <= 20:
                members.append(position)
                break
        else:
            bins.append([position])
    assert _first_fit(problem(shares, 20, ParallelLayout()), range(len(shares))) == bins


@pytest.mark.parametrize("baseline", BASELINES)
@given(st.lists(st.integers(1, 30), min_size=32, max_size=64), st.sampled_from([(1, 1), (2, 1), (2, 2), (4, 2)]))
def test_every_baseline_runs_each_sample_once_in_equal_legal_counts(
    baseline: object, shares: list[int], size: tuple[int, int]
) -> None:
    dp, vpp = size
    layout = ParallelLayout(dp=dp, pp=2, vpp=vpp)
    ranks = baseline(problem(shares, 40, layout))  # type: ignore[operator]
    assert sorted(p for rank in ranks for members in rank for p in members) == list(range(len(shares)))
    assert len({len(rank) for rank in ranks}) == 1
    assert layout.is_legal(len(ranks[0]))
    assert all(rank_members for rank in ranks for rank_members in rank)
    if baseline is not two_level_karmarkar_karp:
        assert all(sum(shares[p] for p in members) <= 40 or len(members) == 1 for rank in ranks for members in rank)


def test_arrival_first_fit_deals_round_robin() -> None:
    # bins in arrival order: {7, 3}, {8, 2}, {5, 5}, {9, 1}
    ranks = arrival_first_fit(problem([7, 3, 8, 2, 5, 5, 9, 1], 10, ParallelLayout(dp=2)))
    assert ranks == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]


def test_first_fit_splits_the_fullest_bin_to_align() -> None:
    # bins {3, 3, 3}, {9}, {8}: four needed, so the fullest bin of several samples is halved
    ranks = arrival_first_fit(problem([3, 3, 3, 9, 8], 10, ParallelLayout(dp=4)))
    assert sorted(len(members) for rank in ranks for members in rank) == [1, 1, 1, 2]


def test_karmarkar_karp_reaches_the_difference_of_the_paper() -> None:
    # Karmarkar and Karp's own example, 8 7 6 5 4, ends with a difference of 2
    groups = karmarkar_karp(range(5), [8, 7, 6, 5, 4], 2)
    sums = sorted(sum([8, 7, 6, 5, 4][p] for p in group) for group in groups)
    assert sums == [14, 16]


@settings(max_examples=25)
@given(st.lists(st.floats(0.5, 99), min_size=6, max_size=8), st.integers(2, 4))
def test_karmarkar_karp_is_within_its_bound_of_the_optimum(costs: list[float], parts: int) -> None:
    # Michiels et al., 2003: the largest sum is at most 4/3 - 1/(3 (parts - 1)) times the optimum
    groups = karmarkar_karp(range(len(costs)), costs, parts)
    assert sorted(p for group in groups for p in group) == list(range(len(costs)))
    best = min(
        max(sum(cost for cost, at in zip(costs, where, strict=True) if at == part) for part in range(parts))
        for where in itertools.product(range(parts), repeat=len(costs))
        if where[0] == 0
    )
    largest = max(sum(costs[p] for p in group) for group in groups)
    assert largest <= best * (4 / 3 - 1 / (3 * (parts - 1)) if parts > 2 else 7 / 6) + 1e-9


def test_karmarkar_karp_ignores_the_budget() -> None:
    # S3: seven bins of 7 tokens are counted for 8 samples of 7 at capacity 8, so one holds 14
    ranks = two_level_karmarkar_karp(problem([7] * 8, 8, ParallelLayout()))
    assert sorted(len(members) for members in ranks[0]) == [1, 1, 1, 1, 1, 1, 2]


@pytest.mark.parametrize("baseline", BASELINES)
def test_no_baseline_knows_fillers(baseline: object) -> None:
    with pytest.raises(ScheduleError, match=r"cannot fill 4 (ranks|micro-batches)"):
        baseline(problem([1, 1, 1], 1, ParallelLayout(dp=4)))  # type: ignore[operator]


def test_deep_trees_are_flattened_without_recursion() -> None:
    groups = karmarkar_karp(range(20_000), [float(2**50 >> min(i, 49)) for i in range(20_000)], 2)
    assert sum(map(len, groups)) == 20_000
