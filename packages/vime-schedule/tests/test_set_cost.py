"""Costs of whole micro-batches: families are kept together where that pays, and the true cost is stated."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from vime_schedule import (
    FixedSize,
    ParallelLayout,
    ScheduleError,
    SetCost,
    SharedPrefixCost,
    TokenBudget,
    build_dp_schedule,
)


def shared_prefixes(prompts: int, siblings: int) -> SharedPrefixCost:
    draw = random.Random(3)
    prefixes = [draw.randint(500, 1500) for _ in range(prompts) for _ in range(1)]
    ids = [prompt for prompt in range(prompts) for _ in range(siblings)]
    draw.shuffle(ids)
    lengths = [prefixes[prompt] + draw.randint(20, 300) for prompt in ids]
    return SharedPrefixCost(
        cost=float, total_lengths=lengths, prompt_ids=ids, prefix_lengths=[prefixes[prompt] for prompt in ids]
    )


def test_siblings_share_micro_batches_and_the_step_gets_cheaper() -> None:
    cost = shared_prefixes(prompts=32, siblings=4)
    options = {
        "layout": ParallelLayout(dp=4),
        "batching": TokenBudget(max_tokens_per_gpu=8192),
        "global_batch_size": 128,
        "objective": "lockstep",
    }
    together = build_dp_schedule(cost.total_lengths, cost=cost, **options)
    apart = build_dp_schedule(cost.total_lengths, cost=float, **options)
    together.validate(cost.total_lengths)

    def true_cost(plan) -> float:
        return sum(cost.of_micro_batch(held) for rank in plan.steps[0].micro_batches for held in rank)

    assert true_cost(together) < 0.55 * true_cost(apart)
    step = together.steps[0]
    assert sum(map(sum, step.costs)) == pytest.approx(true_cost(together))
    assert step.bounds.lockstep <= sum(step.row_costs)
    assert together.report().total.lockstep_gap < 0.1


def test_families_beyond_the_capacity_are_cut() -> None:
    cost = shared_prefixes(prompts=2, siblings=16)
    plan = build_dp_schedule(
        cost.total_lengths,
        layout=ParallelLayout(dp=2),
        batching=TokenBudget(max_tokens_per_gpu=4000),
        global_batch_size=32,
        cost=cost,
    )
    plan.validate(cost.total_lengths)


def test_too_few_families_fall_back_to_samples() -> None:
    cost = shared_prefixes(prompts=2, siblings=8)
    plan = build_dp_schedule(
        cost.total_lengths,
        layout=ParallelLayout(dp=8),
        batching=FixedSize(micro_batch_size=2),
        global_batch_size=16,
        cost=cost,
        signatures=["text"] * 16,
        shortage="fill",
    )
    assert plan.steps[0].num_fillers == 0


class Wrong(SetCost):
    """A cost that answers NaN for sets."""

    def __call__(self, length: int) -> float:
        return float(length)

    def family(self, position: int) -> int:
        return 0

    def of_micro_batch(self, positions: Sequence[int]) -> float:
        return math.nan


def test_a_cost_of_sets_is_checked() -> None:
    with pytest.raises(ScheduleError, match=r"the cost of a micro-batch of positions \[0, 1\] is nan"):
        build_dp_schedule(
            [5, 6],
            layout=ParallelLayout(),
            batching=TokenBudget(max_tokens_per_gpu=20),
            global_batch_size=2,
            cost=Wrong(),
        )
