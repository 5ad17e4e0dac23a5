"""Worked plans of today's trainers: what ours must agree with, and where it must differ."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from vime_schedule import FixedSize, ParallelLayout, Schedule, ScheduleError, TokenBudget, build_dp_schedule


def plan(lengths: Sequence[int], size: int, dp: int, **options) -> Schedule:
    return build_dp_schedule(
        lengths,
        layout=options.pop("layout", ParallelLayout(dp=dp)),
        batching=options.pop("batching", TokenBudget(max_tokens_per_gpu=10)),
        global_batch_size=size,
        **options,
    )


def partitions(schedule: Schedule) -> set[frozenset[int]]:
    """Samples per rank; which rank is which carries no meaning."""
    return {frozenset(schedule.for_rank(rank).partition) for rank in range(schedule.layout.dp)}


def test_eight_samples_fill_two_ranks_exactly() -> None:
    """Case A. The worked plan pairs (7 3)(5 5) and (8 2)(9 1); ours puts the same pairs on ranks, all full."""
    schedule = plan([7, 3, 8, 2, 5, 5, 9, 1], 8, dp=2)
    assert partitions(schedule) == {frozenset({0, 1, 4, 5}), frozenset({2, 3, 6, 7})}
    assert schedule.for_rank(0).num_microbatches == (2,)
    assert schedule.for_rank(0).global_batch_sizes == (8,)


def test_siblings_and_two_steps() -> None:
    """Case B."""
    schedule = plan([4, 4, 6, 3, 3, 9], 2, dp=2, rollout_ids=[0, 0, 1, 2, 2, 3])
    assert partitions(schedule) == {frozenset({0, 1, 3, 4}), frozenset({2, 5})}
    part = next(schedule.for_rank(r) for r in range(2) if 0 in schedule.for_rank(r).partition)
    assert part.micro_batch_indices == ((0, 1), (2, 3))
    assert part.num_microbatches == (1, 1)
    assert part.global_batch_sizes == (2, 2)


def test_an_oversize_sample_is_alone() -> None:
    """Case F: {25}, {9}, and {3}, {4} apart, since dp=2 needs an even number of micro-batches."""
    schedule = plan([25, 3, 4, 9], 4, dp=2)
    held = {micro_batch for rank in schedule.steps[0].micro_batches for micro_batch in rank}
    assert held == {(0,), (1,), (2,), (3,)}
    assert partitions(schedule) == {frozenset({0, 1}), frozenset({2, 3})}
    assert schedule.oversize == (0,)


def test_dropped_rollouts_are_listed() -> None:
    """Case C drops position 4 in silence."""
    assert plan([5] * 5, 2, dp=2, remainder="drop").dropped == (4,)
    assert plan([5] * 5, 2, dp=2, shortage="fill").dropped == ()


def test_ids_need_not_be_contiguous() -> None:
    """Case M: rollouts are regrouped by first appearance."""
    schedule = plan([4, 6, 4, 6], 1, dp=1, rollout_ids=[0, 1, 0, 1])
    assert [sorted(p for held in step.micro_batches[0] for p in held) for step in schedule.steps] == [[0, 2], [1, 3]]
    assert schedule.for_rank(0).num_microbatches == (1, 2)


def test_shortage_names_the_true_condition() -> None:
    """Cases E and K: "3 samples, below the alignment threshold (4)" and the wrong "5 samples, below (4)"."""
    with pytest.raises(ScheduleError, match=r"step 0 has 3 samples but needs at least 4"):
        plan([9] * 3, 3, dp=2, layout=ParallelLayout(dp=2, pp=2, vpp=2))
    with pytest.raises(ScheduleError, match=r"step 0 has 5 samples but needs at least 8"):
        plan([9] * 5, 5, dp=4)


def test_five_short_singles_on_four_ranks_merge_down() -> None:
    """Fault 2 of the list: where two samples fit together, four micro-batches do."""
    schedule = plan([5] * 5, 5, dp=4)
    assert schedule.steps[0].num_micro_batches == 1


def test_a_cost_never_breaks_the_cap() -> None:
    """Case J holds 14 tokens under a cap of 8."""
    schedule = plan([7] * 8, 8, dp=1, batching=TokenBudget(max_tokens_per_gpu=8), cost=lambda length: length**2)
    assert schedule.steps[0].num_micro_batches == 8


def test_missing_ids_do_not_merge() -> None:
    """Case O merges three samples without an id into one rollout."""
    with pytest.raises(ScheduleError, match=r"rollout_ids\[0\] is None: give every sample an id"):
        plan([5, 5, 5], 1, dp=1, rollout_ids=[None, None, None])


def test_a_fixed_size_need_not_divide() -> None:
    """Case H refuses 6 samples of size 2 on two ranks; the last micro-batches may hold fewer."""
    schedule = plan([5] * 6, 6, dp=2, batching=FixedSize(micro_batch_size=2))
    assert [[len(held) for held in rank] for rank in schedule.steps[0].micro_batches] == [[2, 1], [2, 1]]


def test_a_step_smaller_than_one_batch_still_trains() -> None:
    """A remainder of fewer rollouts than global_batch_size is a step of its own, by its own size."""
    schedule = plan([5, 5, 5], 8, dp=1)
    assert [step.global_batch_size for step in schedule.steps] == [3]


def test_the_trainers_dictionary_has_their_keys() -> None:
    fields = plan([7, 3, 8, 2, 5, 5, 9, 1], 4, dp=2).for_rank(0).as_dict()
    assert list(fields) == ["partition", "micro_batch_indices", "num_microbatches", "global_batch_sizes"]
    assert all(isinstance(value, list) for value in fields.values())
