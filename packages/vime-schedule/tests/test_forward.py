"""The forward-only plan: the same samples per rank, its own budget, and the way back."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from vime_schedule import (
    ParallelLayout,
    Schedule,
    ScheduleError,
    TokenBudget,
    build_dp_schedule,
    build_forward_schedule,
)

LAYOUTS = [ParallelLayout(dp=3), ParallelLayout(dp=2, cp=2, pp=2, vpp=2), ParallelLayout(dp=1)]


@st.composite
def trainings(draw: st.DrawFn) -> Schedule:
    lengths = draw(st.lists(st.integers(1, 300), min_size=4, max_size=50))
    try:
        return build_dp_schedule(
            lengths,
            layout=draw(st.sampled_from(LAYOUTS)),
            batching=TokenBudget(max_tokens_per_gpu=200),
            global_batch_size=draw(st.integers(2, 30)),
            shortage="fill",
        )
    except ScheduleError:
        assume(False)
        raise


@given(trainings(), st.sampled_from([150, 200, 400, 5000]))
def test_every_rank_runs_its_samples_once_and_finds_them_again(training: Schedule, budget: int) -> None:
    batching = TokenBudget(max_tokens_per_gpu=budget)
    forward = build_forward_schedule(training, batching=batching, cost=lambda length: length**2)
    layout, lengths = training.layout, training.total_lengths
    counts = set()
    for rank in range(layout.dp):
        part = forward.for_rank(rank)
        assert part.partition == training.for_rank(rank).partition
        assert len(part.micro_batch_indices) == part.num_microbatches
        counts.add(part.num_microbatches)
        outputs = [part.partition[index] for held in part.micro_batch_indices for index in held]
        assert tuple(outputs[place] for place in part.inverse) == part.partition
        for held in part.micro_batch_indices:
            tokens = batching.gpu_tokens([lengths[part.partition[index]] for index in held], layout.cp)
            assert tokens <= budget or len(held) == 1
    assert len(counts) == 1
    assert layout.is_legal(counts.pop())


def test_micro_batch_k_costs_about_the_same_on_every_rank() -> None:
    training = build_dp_schedule(
        [*range(100, 900, 10)],
        layout=ParallelLayout(dp=4),
        batching=TokenBudget(max_tokens_per_gpu=1000),
        global_batch_size=80,
    )
    forward = build_forward_schedule(training, batching=TokenBudget(max_tokens_per_gpu=4000))
    rows = [
        [sum(training.total_lengths[part.partition[i]] for i in part.micro_batch_indices[k]) for part in forward.ranks]
        for k in range(forward.ranks[0].num_microbatches)
    ]
    assert len(rows) == 3
    assert max(max(row) / min(row) for row in rows) < 1.02


def test_a_rank_that_does_not_exist() -> None:
    training = build_dp_schedule(
        [5, 6], layout=ParallelLayout(), batching=TokenBudget(max_tokens_per_gpu=20), global_batch_size=2
    )
    forward = build_forward_schedule(training, batching=TokenBudget(max_tokens_per_gpu=20))
    with pytest.raises(ScheduleError, match=r"rank -1 is not a data-parallel rank: give one of 0\.\.0"):
        forward.for_rank(-1)
