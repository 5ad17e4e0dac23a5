"""What cannot be planned is refused with the position, the value and the remedy."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import pytest

from vime_schedule import (
    FixedSize,
    ParallelLayout,
    Schedule,
    ScheduleError,
    TokenBudget,
    build_dp_schedule,
    compute_dynamic_global_batch_size,
)


def plan(lengths=(5, 6, 7, 8), **options) -> Schedule:
    arguments = {
        "layout": ParallelLayout(dp=2),
        "batching": TokenBudget(max_tokens_per_gpu=10),
        "global_batch_size": 4,
        **options,
    }
    return build_dp_schedule(lengths, **arguments)


def failing(length: int) -> float:
    if length > 6:
        raise ZeroDivisionError("no such length")
    return 1.0


REFUSED = {
    "a fraction": ({"lengths": [5, 6.5]}, r"total_lengths\[1\] is 6\.5 but counts tokens: give a whole number"),
    "a rational": ({"lengths": [5, Fraction(1, 2)]}, r"total_lengths\[1\] is Fraction\(1, 2\)"),
    "a boolean": ({"lengths": [5, True]}, r"total_lengths\[1\] is True"),
    "text": ({"lengths": [5, "6"]}, r"total_lengths\[1\] is '6'"),
    "NaN": ({"lengths": [5, math.nan]}, r"total_lengths\[1\] is nan"),
    "zero": ({"lengths": [5, 0]}, r"total_lengths\[1\] is 0"),
    "negative": ({"lengths": [5, 6, -7]}, r"total_lengths\[2\] is -7"),
    "beyond 2**53": ({"lengths": [5, 2**53 + 1]}, r"total_lengths\[1\] is 9007199254740993"),
    "no samples": ({"lengths": []}, r"`total_lengths` is empty"),
    "a missing id": ({"rollout_ids": [1, None, 2, 3]}, r"rollout_ids\[1\] is None"),
    "an unhashable id": ({"rollout_ids": [1, 2, [3], 4]}, r"rollout_ids\[2\] is \[3\], which cannot be hashed"),
    "too few ids": ({"rollout_ids": [1, 2]}, r"`rollout_ids` has 2 entries for 4 samples"),
    "too many ids": ({"rollout_ids": [1, 2, 3, 4, 5]}, r"`rollout_ids` has 5 entries for 4 samples"),
    "a missing signature": ({"signatures": ["a", "a", None, "a"]}, r"signatures\[2\] is None"),
    "a step of nothing": ({"global_batch_size": 0}, r"`global_batch_size` is 0 but counts rollouts per step"),
    "a negative step": ({"global_batch_size": -2}, r"`global_batch_size` is -2"),
    "a boolean step": ({"global_batch_size": True}, r"`global_batch_size` is True"),
    "a fractional step": ({"global_batch_size": [2, 2.0]}, r"`global_batch_size\[1\]` is 2\.0"),
    "an empty list": ({"global_batch_size": []}, r"global_batch_size=\[\] adds up to 0 but there are 4 rollouts"),
    "a wrong sum": (
        {"global_batch_size": [2, 1]},
        r"global_batch_size=\[2, 1\] adds up to 3 but there are 4 rollouts",
    ),
    "all dropped": ({"global_batch_size": 5, "remainder": "drop"}, r"leaves nothing to train"),
    "a small budget": (
        {"lengths": [50, 60]},
        r"the budget holds no sample: the shortest, at position 0, has 50 tokens",
    ),
    "few samples": ({"lengths": [5], "global_batch_size": 1}, r"step 0 has 1 samples but needs at least 2"),
    "a negative cost": (
        {"cost": lambda length: 6.5 - length},
        r"the cost of 7 tokens \(first at position 2\) is -0\.5",
    ),
    "a NaN cost": ({"cost": lambda length: math.nan}, r"the cost of 5 tokens \(first at position 0\) is nan"),
    "an infinite cost": ({"cost": lambda length: math.inf}, r"is inf: give a cost from 0 to 1e250"),
    "a failing cost": (
        {"cost": failing},
        r"the cost of 7 tokens \(first at position 2\) failed with ZeroDivisionError: no",
    ),
    "a cost of text": ({"cost": lambda length: "much"}, r"failed with ValueError"),
    "a wrong objective": ({"objective": "fast"}, r"`objective` is 'fast': choose one of 'step', 'lockstep'"),
    "a wrong remainder": ({"remainder": "keep"}, r"`remainder` is 'keep': choose one of"),
    "a wrong oversize": ({"oversize": "keep"}, r"`oversize` is 'keep': choose one of"),
    "a wrong shortage": ({"shortage": "keep"}, r"`shortage` is 'keep': choose one of"),
    "a wrong order": ({"micro_batch_order": "random"}, r"`micro_batch_order` is 'random': choose one of"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unusable_arguments(name: str) -> None:
    options, text = REFUSED[name]
    with pytest.raises(ScheduleError, match=text):
        plan(**options)


VALUES = {
    "dp 0": (lambda: ParallelLayout(dp=0), r"`dp` is 0 but counts ranks: give a whole number of at least 1"),
    "dp 2.0": (lambda: ParallelLayout(dp=2.0), r"`dp` is 2\.0"),
    "pp True": (lambda: ParallelLayout(pp=True), r"`pp` is True"),
    "vpp None": (lambda: ParallelLayout(vpp=None), r"`vpp` is None but counts model chunks"),
    "vpp alone": (lambda: ParallelLayout(vpp=2), r"vpp=2 needs a pipeline to interleave but pp=1"),
    "small group": (
        lambda: ParallelLayout(pp=4, vpp=2, microbatch_group_size_per_vp_stage=2),
        r"microbatch_group_size_per_vp_stage=2 is below pp=4",
    ),
    "budget 0": (lambda: TokenBudget(max_tokens_per_gpu=0), r"`max_tokens_per_gpu` is 0 but counts tokens"),
    "align 0": (lambda: TokenBudget(max_tokens_per_gpu=8, sequence_align=0), r"`sequence_align` is 0"),
    "pack": (lambda: TokenBudget(max_tokens_per_gpu=8, pack_align=16), r"max_tokens_per_gpu=8 is below pack_align=16"),
    "layout": (lambda: TokenBudget(max_tokens_per_gpu=8, cp_layout="ring"), r"`cp_layout` is 'ring': choose one of"),
    "size 0": (lambda: FixedSize(micro_batch_size=0), r"`micro_batch_size` is 0 but counts samples"),
    "no rollouts": (lambda: compute_dynamic_global_batch_size(0, dp=2), r"`num_rollouts` is 0 but counts rollouts"),
    "no ranks": (lambda: compute_dynamic_global_batch_size(4, dp=0), r"`dp` is 0 but counts ranks"),
    "steps": (
        lambda: compute_dynamic_global_batch_size(9, dp=4, num_steps=3),
        r"9 rollouts over 3 steps are 3 per step",
    ),
    "rank": (lambda: plan().for_rank(2), r"rank 2 is not a data-parallel rank: give one of 0\.\.1"),
}


def test_a_cost_that_says_what_to_do_is_not_told_twice() -> None:
    def measured(length: int) -> float:
        raise ScheduleError(f"length {length} was not measured: measure it.")

    with pytest.raises(ScheduleError) as caught:
        plan(lengths=[5, 6, 7, 8], cost=measured)
    assert str(caught.value) == ("the cost of 5 tokens (first at position 0): length 5 was not measured: measure it.")


@pytest.mark.parametrize("name", VALUES)
def test_unusable_values(name: str) -> None:
    make, text = VALUES[name]
    with pytest.raises(ScheduleError, match=text):
        make()


def damaged(change) -> str:
    raw = json.loads(plan().to_json())
    change(raw)
    return json.dumps(raw)


def put(*path_and_value: object):
    *path, last, value = path_and_value

    def change(raw):
        for key in path:
            raw = raw[key]
        raw[last] = value

    return change


DAMAGE = {
    "a field is gone": (lambda raw: raw.pop("steps"), r"plan has no field 'steps'"),
    "another format": (put("format", "vime-schedule/0"), r"the plan has format 'vime-schedule/0'"),
    "a list is a number": (put("total_lengths", 3), r"plan\.total_lengths must be a list but is 3"),
    "a number is text": (put("layout", "dp", "2"), r"plan\.layout\.dp must be a whole number but is '2'"),
    "a layout is refused": (put("layout", "dp", 0), r"`dp` is 0 but counts ranks"),
    "an unknown budget": (put("batching", "kind", "Budget"), r"plan\.batching\.kind is 'Budget'"),
    "an unknown layout": (put("batching", "cp_layout", "ring"), r"plan\.batching\.cp_layout must be one of"),
    "a fraction of a position": (put("dropped", [0.5]), r"plan\.dropped must be whole numbers"),
    "a step is a list": (put("steps", 0, []), r"plan\.steps\[0\] must be a JSON object but is \[\]"),
    "a rank is empty": (
        put("steps", 0, "micro_batches", 0, []),
        r"micro_batches must be non-empty lists, one per rank",
    ),
    "a cost is negative": (
        put("steps", 0, "costs", 0, 0, -1.0),
        r"costs must be finite numbers of at least 0 but is -1",
    ),
    "a cost is missing": (put("steps", 0, "costs", 0, [1.0]), r"costs must be one number per micro-batch"),
    "a bound is text": (put("steps", 0, "bounds", "step", "no"), r"bounds\.step must be finite numbers"),
    "a sample is twice": (
        put("steps", 0, "micro_batches", 0, 0, [0, 0]),
        r"law S1: the sample at position 0 is planned twice",
    ),
    "a sample is missing": (
        put("steps", 0, "micro_batches", 0, 0, []),
        r"law S1: the sample at position \d is on no rank",
    ),
    "a sample is unknown": (
        put("steps", 0, "micro_batches", 0, 0, [9]),
        r"law S1: position 9 is not one of the 4 samples",
    ),
    "ranks are missing": (put("layout", "dp", 3), r"law S2: step 0 has 2 ranks but dp=3"),
    "the count is not legal": (
        lambda raw: raw["layout"].update(pp=4, vpp=2),
        r"law S2: step 0 has 2 micro-batches per rank",
    ),
    "the budget is broken": (
        put("batching", "max_tokens_per_gpu", 7),
        r"law S3: micro-batch \d of rank \d in step 0 holds 8",
    ),
    "oversize is wrong": (put("oversize", [0]), r"law S3: `oversize` lists a sample within the budget"),
    "rollouts are too few": (put("rollouts", [0]), r"plan\.rollouts must have one entry per sample"),
    "rollouts are miscounted": (
        put("steps", 0, "global_batch_size", 3),
        r"law S4: step 0 states 3 rollouts but trains 4",
    ),
    "signatures are mixed": (put("signatures", [0, 0, 1, 0]), r"micro-batch \d of step 0 mixes signatures"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_plans(name: str) -> None:
    change, text = DAMAGE[name]
    with pytest.raises(ScheduleError, match=text):
        Schedule.from_json(damaged(change))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "NaN", plan().to_json()[:-20], "[" * 100_000])
def test_text_that_is_no_plan(text: str) -> None:
    with pytest.raises(ScheduleError, match=r"plan"):
        Schedule.from_json(text)


def test_a_rollout_in_two_steps_is_found() -> None:
    raw = json.loads(plan(global_batch_size=2).to_json())
    raw["rollouts"] = [0, 1, 1, 2]
    with pytest.raises(ScheduleError, match=r"law S4: rollout 1 trains in steps 0 and 1 \(sample at position 2\)"):
        Schedule.from_json(json.dumps(raw))


def test_a_plan_is_checked_against_its_own_lengths() -> None:
    schedule = plan()
    schedule.validate([5, 6, 7, 8])
    with pytest.raises(ScheduleError, match=r"the plan was made for 7 tokens at position 2 but 9 was given"):
        schedule.validate([5, 6, 9, 8])
    with pytest.raises(ScheduleError, match=r"the plan is for 4 samples but 3 lengths were given"):
        schedule.validate([5, 6, 7])


class Whole:
    """A whole number of another library."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


def test_whole_numbers_of_other_types_are_lengths() -> None:
    schedule = plan([Whole(5), Whole(6), Whole(7), 8])
    assert schedule == plan()
    assert {type(length) for length in schedule.total_lengths} == {int}


@pytest.mark.parametrize("scale", [1, 2**40])
def test_lengths_up_to_2_to_the_53(scale: int) -> None:
    lengths = [8192 * scale, 4096 * scale, 4096 * scale, 100 * scale, 9 * scale]
    schedule = plan(lengths, batching=TokenBudget(max_tokens_per_gpu=2**53), global_batch_size=5, cost=lambda t: t * t)
    assert schedule.report().total.samples == 5


@pytest.mark.parametrize("factor", [1e-290, 1e-200, 1e240])
def test_costs_of_any_size(factor: float) -> None:
    """Only ratios between costs matter, as far as floats go."""
    assert plan(cost=lambda length: length * factor).report().total.imbalance == pytest.approx(1.0, abs=0.2)
