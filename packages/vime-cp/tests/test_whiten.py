"""Whitening: pooled moments over ranks, exact where others cancel, and never NaN."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vime_cp import SimulatedGroup, simulate, whiten


def by_definition(values: torch.Tensor, mask: torch.Tensor, *, shift_mean: bool = True) -> torch.Tensor:
    kept = values[mask != 0].double()
    if len(kept) == 0:
        return torch.zeros_like(values)
    std = torch.sqrt(kept.var(unbiased=len(kept) > 1) + 1e-8)
    result = (values.double() - kept.mean()) / std + (0.0 if shift_mean else kept.mean())
    return torch.where(mask != 0, result, 0)


@given(
    seed=st.integers(0, 10_000),
    count=st.integers(0, 40),
    ranks=st.integers(1, 8),
    offset=st.sampled_from([0.0, 1.0, 1e4, -1e7]),
    shift_mean=st.booleans(),
)
def test_C2_the_same_over_any_ranks(seed: int, count: int, ranks: int, offset: float, shift_mean: bool) -> None:
    """slime #2235: halves of one sequence were whitened with the statistics of their own CP rank."""
    gen = torch.Generator().manual_seed(seed)
    values = torch.randn(count, generator=gen, dtype=torch.float64) + offset
    mask = torch.rand(count, generator=gen) < 0.7
    owner = torch.randint(0, ranks, (count,), generator=gen)
    expected = by_definition(values, mask, shift_mean=shift_mean)
    poisoned = torch.where(mask, values, torch.nan)

    def one_rank(group: SimulatedGroup) -> torch.Tensor:
        mine = owner == group.rank
        return whiten(poisoned[mine], mask[mine], group=group, shift_mean=shift_mean)

    for rank, part in enumerate(simulate(ranks, one_rank)):
        assert torch.allclose(part, expected[owner == rank], rtol=1e-9, atol=1e-7)


def test_C11_cp_ranks_share_one_mean() -> None:
    """slime #2235: slices [1, 2] and [3, 4] were whitened around 1.5 and 3.5 instead of 2.5."""
    parts = simulate(2, lambda group: whiten(torch.tensor([1.0, 2.0]) + 2 * group.rank, group=group))
    assert torch.cat(parts).tolist() == pytest.approx([-1.161895, -0.387298, 0.387298, 1.161895])


def test_miles_3229_a_large_offset_costs_no_digits() -> None:
    """miles #3229, slime 2.8: E[x^2] - E[x]^2 in fp32 gave a variance of 16 at offset 10000."""
    values = torch.randn(10_000, generator=torch.Generator().manual_seed(0)) + 10_000
    result = whiten(values)
    assert result.std().item() == pytest.approx(1.0, abs=1e-4)
    assert result.mean().item() == pytest.approx(0.0, abs=1e-4)


def test_slime_constant_values_give_zero_not_nan() -> None:
    """slime 2.8: 0.7 thirty thousand times had a variance of -1.2e-7, hence NaN."""
    result = whiten(torch.full((30_000,), 0.7))
    assert result.abs().max().item() < 1e-6


def test_ROLL_475_one_token_gives_zero() -> None:
    """ROLL #475: the variance of a single token."""
    assert whiten(torch.tensor([5.0])).tolist() == [0.0]
    assert whiten(torch.tensor([5.0]), shift_mean=False).tolist() == [5.0]
    assert whiten(torch.tensor([5.0, 9.0]), torch.tensor([1, 0])).tolist() == [0.0, 0.0]
    assert whiten(torch.tensor([5.0, 5.0]), epsilon=0.0).tolist() == [0.0, 0.0]


def test_C15_no_token_at_all_gives_zero() -> None:
    assert whiten(torch.tensor([5.0, torch.nan]), torch.zeros(2)).tolist() == [0.0, 0.0]
    assert whiten(torch.zeros(0)).tolist() == []


def test_slime_1369_keeping_the_mean_keeps_it() -> None:
    """slime #1369: with shift_mean=False the mean was scaled too."""
    values = torch.tensor([9.0, 10.0, 11.0])
    result = whiten(values, shift_mean=False)
    assert result.tolist() == pytest.approx([9.0, 10.0, 11.0])
    assert whiten(10 * values, shift_mean=False).tolist() == pytest.approx([99.0, 100.0, 101.0])


def test_result_keeps_the_dtype_and_carries_no_graph() -> None:
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        result = whiten(torch.tensor([1.0, 2.0], dtype=dtype, requires_grad=True))
        assert result.dtype == dtype
        assert not result.requires_grad


def test_bad_input_is_named_before_the_collective() -> None:
    def one_rank(group: SimulatedGroup) -> None:
        if group.rank == 0:
            whiten(torch.zeros(3), torch.ones(2), group=group)

    with pytest.raises(ValueError, match=r"whiten: mask has shape \(2,\) but values has \(3,\)"):
        simulate(2, one_rank)
    with pytest.raises(ValueError, match=r"whiten: epsilon is -1"):
        whiten(torch.zeros(3), epsilon=-1)
    with pytest.raises(ValueError, match=r"whiten: values has shape \(1, 3\)"):
        whiten(torch.zeros(1, 3))
