"""The same laws over real process groups: gloo, 2, 4 and 8 ranks, any subgroup."""

from __future__ import annotations

import pytest
from metrics_scenarios import step_of, values_of

from vime_metrics import merge

APPROX = {"rel": 1e-12, "abs": 1e-12, "nan_ok": True}


def pooled(ranks, many=1):
    """The report of the data of all `ranks`, merged in one process."""
    found = {}
    for key, metric in merge(*(step_of(rank, many) for rank in ranks)).items():
        found |= metric.report(key)
    return dict(sorted(found.items()))


def assert_same(found, expected):
    assert list(found) == list(expected)
    assert found == pytest.approx(expected, **APPROX)


@pytest.mark.parametrize("many", [1, 500])
@pytest.mark.parametrize("size", [2, 4, 8])
def test_m2_every_rank_gets_the_numbers_of_the_pooled_data(run_world, size, many):
    """Bit for bit the same on every rank and in every step."""
    expected = pooled(range(size), many)
    answers = run_world("every_kind", size, many)
    assert {repr(numbers) for found in answers for numbers in found} == {repr(answers[0][0])}
    for found in answers:
        for numbers in found:
            assert_same(numbers, expected)


@pytest.mark.parametrize("dst", [0, 3])
def test_m2_reduce_gives_them_to_one_rank(run_world, dst):
    answers = run_world("every_kind_to_one", 4, dst)
    for rank, found in enumerate(answers):
        for numbers in found:
            if rank == dst:
                assert_same(numbers, pooled(range(4)))
            else:
                assert numbers is None


@pytest.mark.parametrize(
    ("size", "members"), [(4, [2, 3]), (4, [0, 2]), (4, [1, 3]), (8, [1, 3, 5, 7]), (8, [1, 6])], ids=str
)
def test_subgroups_without_global_rank_0(run_world, size, members):
    """`gather_object(dst=0)` was refused in a group that lacks global rank 0: ranks count within the group here."""
    others = [rank for rank in range(size) if rank not in members]
    answers = run_world("subgroup", size, members, 1)
    for group in (members, others):
        for rank in group:
            everywhere, to_one = answers[rank]
            assert_same(everywhere, pooled(group))
            assert (to_one is not None) == (group.index(rank) == 1)
            if to_one is not None:
                assert_same(to_one, pooled(group))


def test_a_rank_outside_the_group_is_told(run_world):
    inside, out = run_world("outside", 2)
    assert inside == {"a": 1.0}
    assert out == ("MetricError", "this rank is not part of the group: call it on the ranks that are.")


@pytest.mark.parametrize(("size", "cp"), [(4, 2), (8, 4)])
def test_m4_cp_copies_count_once(run_world, size, cp):
    replicas = range(size // cp)
    values = [value for rank in replicas for value in values_of(rank)]
    for found in run_world("replicas", size, cp):
        assert found == pytest.approx(
            {
                "reward": sum(values) / len(values),
                "samples": sum(rank + 1 for rank in replicas),
                "tokens": sum(range(size)),
            }
        )


def test_m3_counts_are_exact_to_two_to_the_53(run_world):
    for found in run_world("counts_beyond_float32", 4):
        assert found == {"tokens": 2.0**53}


def test_tensors_are_read(run_world):
    for found in run_world("tensors", 2):
        assert found["mean"] == found["pair"] == pytest.approx(13 / 6)
        assert found["list"] == 4.0
        assert found["quantiles/p50"] == 2.0
