"""One test for each planning fault that users of other trainers reported, with the right answer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import pytest

from vime_schedule import (
    FixedSize,
    ParallelLayout,
    PolynomialCost,
    Schedule,
    ScheduleError,
    TokenBudget,
    build_dp_schedule,
    build_forward_schedule,
    compute_dynamic_global_batch_size,
)


def plan(lengths: Sequence[int], cap: int, *, dp: int = 1, size: int | list[int] | None = None, **options) -> Schedule:
    """A plan under a plain token budget, in one step unless told otherwise."""
    return build_dp_schedule(
        lengths,
        layout=options.pop("layout", ParallelLayout(dp=dp)),
        batching=options.pop("batching", None) or TokenBudget(max_tokens_per_gpu=cap),
        global_batch_size=size or len(set(options.get("rollout_ids") or range(len(lengths)))),
        **options,
    )


def tokens(schedule: Schedule, lengths: Sequence[int]) -> list[int]:
    """Tokens of every micro-batch, largest first."""
    bins = [held for step in schedule.steps for held in chain.from_iterable(step.micro_batches)]
    return sorted((sum(lengths[p] for p in held) for held in bins), reverse=True)


def sizes(schedule: Schedule) -> list[int]:
    return [step.global_batch_size for step in schedule.steps]


@pytest.mark.parametrize("cost", [PolynomialCost(0.0, 24576.0, 1.0), PolynomialCost(0.0, 1.0, 0.0)])
def test_s1_s3_balancing_never_breaks_the_cap(cost: PolynomialCost) -> None:
    """ceil(56 / 8) = 7 micro-batches would put two 7s, 14 tokens, into one."""
    assert tokens(plan([7] * 8, cap=8, cost=cost), [7] * 8) == [7] * 8


def test_s4_all_ranks_run_equally_many() -> None:
    schedule = plan([5, 5, 5, 5, 9, 9, 9], cap=10, dp=2)
    assert [len(rank) for rank in schedule.steps[0].micro_batches] == [3, 3]


def test_s5_many_micro_batches_meet_few_samples() -> None:
    """Planned over both ranks, the two 1s fill up with the six 9s; per rank, one would need 6 and hold 2 samples."""
    schedule = plan([1, 1] + [9] * 6, cap=9, dp=2)
    assert [len(rank) for rank in schedule.steps[0].micro_batches] == [4, 4]
    assert schedule.steps[0].num_fillers == 0


def test_s6_no_rank_starves() -> None:
    schedule = plan([5] * 9, cap=0, dp=4, batching=FixedSize(micro_batch_size=3))
    assert sorted(sum(map(len, rank)) for rank in schedule.steps[0].micro_batches) == [2, 2, 2, 3]


def test_s6_fewer_samples_than_ranks_is_reported() -> None:
    with pytest.raises(
        ScheduleError, match=r"step 0 has 3 samples but needs at least 4: 1 micro-batches on each of dp=4"
    ):
        plan([5] * 3, cap=10, dp=4)


def test_s8_counts_differ_by_at_most_one() -> None:
    schedule = plan([9, 1, 1, 1, 1, 1, 1], cap=0, dp=4, batching=FixedSize(micro_batch_size=2))
    assert sorted(sum(map(len, rank)) for rank in schedule.steps[0].micro_batches) == [1, 2, 2, 2]


def test_s9_parts_are_data_parallel_ranks_not_all_ranks() -> None:
    schedule = plan([5] * 8, cap=10, layout=ParallelLayout(dp=4, tp=2))
    assert schedule.layout.world_size == 8
    assert len(schedule.steps[0].micro_batches) == 4


def test_s10_a_virtual_pipeline_shortage_is_told_first_with_all_numbers() -> None:
    layout = ParallelLayout(dp=2, pp=2, vpp=2, microbatch_group_size_per_vp_stage=4)
    with pytest.raises(ScheduleError) as error:
        plan([5] * 3, cap=100, layout=layout)
    assert str(error.value).startswith(
        "step 0 has 3 samples but needs at least 8: 4 micro-batches on each of dp=2 ranks (pp=2, vpp=2, group=4; vpp:"
    )
    assert str(error.value).endswith("Add 5 samples, lower `dp`, or choose shortage='fill'.")
    filled = plan([5] * 3, cap=100, layout=layout, shortage="fill")
    assert (filled.steps[0].num_micro_batches, filled.steps[0].num_fillers) == (4, 5)


def test_s11_rounding_past_the_samples_takes_two_fillers_or_says_so() -> None:
    with pytest.raises(ScheduleError, match=r"step 0 has 6 samples but needs at least 8: 2 micro-batches"):
        plan([9] * 6, cap=10, dp=4)
    filled = plan([9] * 6, cap=10, dp=4, shortage="fill")
    assert filled.steps[0].num_fillers == 2
    assert filled.report().total.fillers == 2


def test_s12_the_dynamic_batch_size_counts_rollouts_that_exist() -> None:
    with pytest.raises(ScheduleError, match=r"3 rollouts over 1 steps are 3 per step, fewer than dp=8"):
        compute_dynamic_global_batch_size(3, dp=8)
    assert compute_dynamic_global_batch_size(5, dp=4) == 4  # 10 samples of 5 rollouts: not 8
    assert plan([9] * 3, cap=10, dp=8, shortage="fill").steps[0].num_fillers == 5


def test_s13_trailing_rollouts_have_a_policy() -> None:
    seven, thirty_two = [5] * 7, [5] * 32
    assert sizes(plan(seven, cap=50, size=4)) == [4, 3]
    assert sizes(plan(seven, cap=50, size=4, remainder="spread")) == [7]
    assert sizes(plan(thirty_two, cap=50, size=24)) == [24, 8]
    assert sizes(plan(thirty_two, cap=50, size=[16, 16])) == [16, 16]
    dropping = plan(seven, cap=50, size=4, remainder="drop")
    assert (sizes(dropping), dropping.dropped, dropping.report().dropped) == ([4], (4, 5, 6), 3)
    with pytest.raises(ScheduleError, match=r"7 rollouts leave 3 beyond 1 full steps of global_batch_size=4"):
        plan(seven, cap=50, size=4, remainder="error")


def test_s14_siblings_stay_in_one_step() -> None:
    ids = ["a", "b", "b", "c", "d", "d", "d"]
    schedule = plan([5] * 7, cap=10, size=2, rollout_ids=ids)
    assert sizes(schedule) == [2, 2]
    assert [step.num_samples for step in schedule.steps] == [3, 4]


def test_s16_s18_one_long_sample_has_a_policy() -> None:
    lengths = [31000, 10, 20]
    alone = plan(lengths, cap=30000)
    assert alone.oversize == (0,)
    assert (0,) in alone.steps[0].micro_batches[0]
    dropped = plan(lengths, cap=30000, oversize="drop", size=3)
    assert (dropped.dropped, dropped.oversize) == ((0,), ())
    with pytest.raises(ScheduleError, match=r"1 samples exceed the budget, first the one at position 0: 31000 tokens"):
        plan(lengths, cap=30000, oversize="error")
    with pytest.raises(ScheduleError, match=r"the budget holds no sample: the shortest, at position 0, has 21 tokens"):
        plan([21], cap=20)


def test_s19_counts_round_up_to_the_ranks() -> None:
    schedule = plan([9] * 5 + [1] * 3, cap=9, dp=4)
    assert len(tokens(schedule, [9] * 5 + [1] * 3)) == 8


def test_s21_fewer_groups_than_ranks() -> None:
    with pytest.raises(ScheduleError, match=r"step 0 has 1 samples but needs at least 2"):
        plan([5], cap=10, dp=2, rollout_ids=["only"])
    assert plan([5], cap=10, dp=2, rollout_ids=["only"], shortage="fill").steps[0].num_fillers == 1


def test_s22_no_micro_batch_is_empty() -> None:
    schedule = plan([10, 3], cap=8)
    assert sorted(schedule.steps[0].micro_batches[0]) == [(0,), (1,)]


def test_s23_feasible_input_is_planned() -> None:
    assert tokens(plan([1] * 4, cap=10, dp=2), [1] * 4) == [2, 2]


def test_s24_context_parallel_sizes_need_not_be_powers_of_two() -> None:
    layout = ParallelLayout(cp=3)
    schedule = plan([20, 4, 4], cap=8, layout=layout)
    assert TokenBudget(max_tokens_per_gpu=8).gpu_tokens([20], cp=3) == 8
    assert sorted(schedule.steps[0].micro_batches[0]) == [(0,), (1, 2)]


def test_s25_too_few_samples_for_the_ranks_says_what_to_change() -> None:
    with pytest.raises(ScheduleError, match=r"Add 1 samples, lower `dp`, or choose shortage='fill'"):
        plan([5] * 3, cap=10, dp=4)
    with pytest.raises(ScheduleError, match=r"step 0 has 3 samples but needs at least 4"):
        plan([5] * 3, cap=0, dp=2, batching=FixedSize(micro_batch_size=1))


def test_s27_padding_to_tensor_and_context_parallel_ranks() -> None:
    assert TokenBudget(max_tokens_per_gpu=8192, pack_align=2).gpu_tokens([4099], cp=1) == 4100
    assert 2 * TokenBudget(max_tokens_per_gpu=8192, sequence_align=2).gpu_tokens([4099], cp=2) == 4104


def test_s28_the_cap_counts_padding() -> None:
    schedule = plan([100, 90], cap=100, batching=TokenBudget(max_tokens_per_gpu=100, sequence_align=16))
    assert schedule.oversize == (0,)


def test_s29_context_parallel_padding_counts() -> None:
    schedule = plan([9] * 7, cap=16, layout=ParallelLayout(cp=4))
    assert tokens(schedule, [9] * 7) == [36, 27]
    assert schedule.report().total.fill_fraction == pytest.approx(28 / 32)


def test_s30_a_slot_has_one_modality_on_all_ranks() -> None:
    kinds = ["image", "text", "text", "image"]
    schedule = plan([5, 6, 7, 8], cap=10, dp=2, signatures=kinds)
    for row in zip(*schedule.steps[0].micro_batches, strict=True):
        assert len({kinds[p] for held in row for p in held}) == 1


def test_s31_a_filler_is_told_apart() -> None:
    """A trainer must attach a filler to the loss with weight 0, so the plan marks it instead of copying a sample."""
    schedule = plan([5, 6, 7], cap=7, dp=2, shortage="fill")
    parts = [schedule.for_rank(rank) for rank in range(2)]
    assert sorted(part.micro_batch_indices.count(()) for part in parts) == [0, 1]
    assert sorted(p for part in parts for p in part.partition) == [0, 1, 2]


def test_s32_longest_first_for_the_allocator() -> None:
    lengths = [2000, 4000, 8000, 16000]
    layout = ParallelLayout(pp=2)
    schedule = plan(
        lengths, cap=16000, layout=layout, batching=FixedSize(micro_batch_size=1), micro_batch_order="longest_first"
    )
    assert schedule.steps[0].micro_batches[0] == ((3,), (2,), (1,), (0,))


def test_s36_zero_lengths_are_refused() -> None:
    with pytest.raises(ScheduleError, match=r"total_lengths\[0\] is 0 but counts tokens"):
        plan([0, 0, 0, 0], cap=10, dp=2)


def test_s38_counts_follow_the_group_not_vpp() -> None:
    layout = ParallelLayout(pp=4, vpp=2)
    schedule = plan([9] * 6 + [1] * 10, cap=10, layout=layout)
    assert schedule.steps[0].num_micro_batches == 8
    assert not layout.is_legal(6)


def test_s38b_the_smallest_legal_count_not_the_next_multiple() -> None:
    layout = ParallelLayout(pp=4, vpp=2, microbatch_group_size_per_vp_stage=8)
    schedule = plan([9] * 11 + [1] * 5, cap=10, layout=layout)
    assert schedule.steps[0].num_micro_batches == 12
    assert [count for count in range(1, 25) if layout.is_legal(count)] == [8, *range(12, 17), *range(20, 25)]


def test_s39_steps_mix_lengths() -> None:
    """Steps are cut in arrival order, never by length."""
    schedule = plan([1, 8, 2, 7, 3, 6, 4, 5], cap=100, size=2)
    assert [sorted(step.micro_batches[0][0]) for step in schedule.steps] == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_s41_a_sample_beyond_the_budget_says_what_it_needs() -> None:
    with pytest.raises(ScheduleError, match=r"raise the budget to 65536, or choose oversize='alone'"):
        plan([65536, 10], cap=64000, oversize="error")


def test_forward_only_passes_take_a_larger_budget() -> None:
    """The second plan of slime's issue 1964: same samples per rank, fewer micro-batches, and the way back."""
    training = plan([9] * 8, cap=10, dp=2)
    forward = build_forward_schedule(training, batching=TokenBudget(max_tokens_per_gpu=20))
    part = forward.for_rank(0)
    assert part.partition == training.for_rank(0).partition
    assert (training.for_rank(0).num_microbatches, part.num_microbatches) == ((4,), 2)
