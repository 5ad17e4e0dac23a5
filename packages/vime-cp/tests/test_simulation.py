"""Simulated ranks: they combine in rank order, join graphs, and never hang."""

from __future__ import annotations

import pytest
import torch

from vime_cp import MissingRankError, SimulatedGroup, simulate, whiten


def test_results_come_in_rank_order() -> None:
    assert simulate(5, lambda group: (group.rank, group.size)) == [(rank, 5) for rank in range(5)]


def test_exchange_gives_every_rank_the_same_tensors_round_after_round() -> None:
    def one_rank(group: SimulatedGroup) -> list[list[float]]:
        return [[x.item() for x in group.exchange(torch.tensor(10.0 * turn + group.rank))] for turn in range(50)]

    for result in simulate(4, one_rank):
        assert result == [[10.0 * turn + rank for rank in range(4)] for turn in range(50)]


def test_gradients_cross_ranks() -> None:
    leaves = [torch.tensor(float(rank), requires_grad=True) for rank in range(3)]

    def one_rank(group: SimulatedGroup) -> torch.Tensor:
        total = torch.stack(group.exchange(leaves[group.rank])).sum()
        return (group.rank + 1) * total

    torch.stack(simulate(3, one_rank)).sum().backward()
    assert [leaf.grad.item() for leaf in leaves if leaf.grad is not None] == [6.0, 6.0, 6.0]


def test_threads_inherit_whether_gradients_are_on() -> None:
    assert simulate(2, lambda group: torch.is_grad_enabled()) == [True, True]
    with torch.no_grad():
        assert simulate(2, lambda group: torch.is_grad_enabled()) == [False, False]


def test_a_rank_that_skips_a_collective_is_named_instead_of_waited_for() -> None:
    """slime #2235, SkyRL #1817: a rank with nothing to contribute skipped the collective and the others hung."""

    def one_rank(group: SimulatedGroup) -> None:
        if group.rank != 1:
            whiten(torch.zeros(3), group=group)

    with pytest.raises(MissingRankError, match=r"waits in a collective but rank 1 of 3 has ended"):
        simulate(3, one_rank)


def test_the_rank_at_fault_is_reported_not_those_that_waited() -> None:
    def one_rank(group: SimulatedGroup) -> None:
        if group.rank == 2:
            raise KeyError("the fault")
        whiten(torch.zeros(3), group=group)

    with pytest.raises(KeyError, match="the fault"):
        simulate(3, one_rank)


def test_shapes_that_differ_by_rank_are_named() -> None:
    with pytest.raises(ValueError, match=r"shapes differ by rank: \[\(1,\), \(2,\)\]"):
        simulate(2, lambda group: group.exchange(torch.zeros(group.rank + 1)))


def test_a_size_below_one_is_an_error() -> None:
    with pytest.raises(ValueError, match="size is 0"):
        simulate(0, lambda group: None)
