"""Which counts the pipeline takes, and what one GPU holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vime_schedule import FixedSize, ParallelLayout, ScheduleError, TokenBudget, pipeline_makespan


@st.composite
def interleaved(draw: st.DrawFn) -> ParallelLayout:
    pp = draw(st.integers(2, 6))
    return ParallelLayout(pp=pp, vpp=2, microbatch_group_size_per_vp_stage=draw(st.none() | st.integers(pp, pp + 9)))


def legal(layout: ParallelLayout, count: int) -> bool:
    """Law S2, word for word."""
    group = layout.microbatch_group_size_per_vp_stage or layout.pp
    return layout.pp <= group <= count and (count % group == 0 or count % group >= layout.pp)


@given(interleaved(), st.integers(0, 60))
def test_the_next_legal_count_is_the_smallest(layout: ParallelLayout, at_least: int) -> None:
    assert layout.next_legal(at_least) == next(m for m in range(max(1, at_least), 200) if legal(layout, m))


@given(interleaved(), st.integers(-3, 60))
def test_legal_counts_are_those_the_simulated_pipeline_runs(layout: ParallelLayout, count: int) -> None:
    assert layout.is_legal(count) == (count > 0 and legal(layout, count))
    if layout.is_legal(count):
        assert pipeline_makespan([1.0] * count, pp=layout.pp, vpp=2, group=layout.group) > 0
    elif count > 0:
        with pytest.raises(ScheduleError):
            pipeline_makespan([1.0] * count, pp=layout.pp, vpp=2, group=layout.group)


def test_without_interleaving_every_count_is_legal() -> None:
    layout = ParallelLayout(pp=8, microbatch_group_size_per_vp_stage=3)
    assert [layout.next_legal(m) for m in (0, 1, 5)] == [1, 1, 5]
    assert layout.group == 1


def test_a_layout_reads_well_in_an_error() -> None:
    assert str(ParallelLayout(dp=8, pp=4, vpp=2)) == "dp=8, pp=4, vpp=2, group=4"
    assert str(ParallelLayout(dp=1, cp=2)) == "dp=1, cp=2"


LENGTHS = st.lists(st.integers(1, 500), min_size=1, max_size=12)


@given(
    LENGTHS,
    st.sampled_from([1, 2, 3, 4]),
    st.sampled_from([1, 4, 16]),
    st.sampled_from([1, 8, 128]),
    st.integers(-9, 9),
)
def test_shares_within_the_capacity_are_tokens_within_the_budget(
    lengths: list[int], cp: int, sequence_align: int, pack_align: int, spare: int
) -> None:
    """For budgets around what the samples take, where padding decides."""
    for cp_layout in ("zigzag", "contiguous"):
        options = {"sequence_align": sequence_align, "pack_align": pack_align, "cp_layout": cp_layout}
        shares = sum(TokenBudget(max_tokens_per_gpu=2**20, **options).shares(lengths, cp))
        needed = shares // cp if cp_layout == "contiguous" else shares
        budget = TokenBudget(max_tokens_per_gpu=max(pack_align, needed + spare), **options)
        held = budget.gpu_tokens(lengths, cp)
        assert held % pack_align == 0
        assert held * cp >= sum(lengths)
        assert (shares <= budget.capacity(cp)) == (held <= budget.max_tokens_per_gpu)


@pytest.mark.parametrize(
    ("cp", "options", "lengths", "tokens"),
    [
        (1, {}, [9, 9], 18),
        (1, {"sequence_align": 16}, [100], 112),
        (1, {"sequence_align": 4, "pack_align": 128}, [9, 9], 128),
        (4, {}, [9] * 7, 28),
        (2, {"sequence_align": 2}, [4099], 2052),
        (2, {"cp_layout": "contiguous"}, [9, 9, 9], 14),
        (2, {"cp_layout": "contiguous", "pack_align": 8}, [9, 9, 9], 16),
    ],
)
def test_worked_shares(cp: int, options: dict[str, object], lengths: list[int], tokens: int) -> None:
    assert TokenBudget(max_tokens_per_gpu=10_000, **options).gpu_tokens(lengths, cp) == tokens


def test_a_fixed_size_counts_samples() -> None:
    size = FixedSize(micro_batch_size=4)
    assert (size.capacity(2), size.shares([5, 6], 2), size.gpu_tokens([5, 6], 2)) == (4, [1, 1], 6)
