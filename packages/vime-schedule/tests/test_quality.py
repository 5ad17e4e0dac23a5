"""Plans are near their lower bounds on every family of lengths, not on chosen cases."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from vime_schedule import (
    FixedSize,
    ParallelLayout,
    PolynomialCost,
    Schedule,
    TokenBudget,
    build_dp_schedule,
    pipeline_makespan,
)

COST = PolynomialCost(0.0, 24576.0, 1.0)
FAMILIES = {
    "log-normal": lambda draw: min(32768, int(draw.lognormvariate(7.6, 1.0)) + 1),
    "heavy tail": lambda draw: min(32768, int(draw.lognormvariate(7.0, 1.6)) + 1),
    "truncation spike": lambda draw: 32768 if draw.random() < 0.15 else int(draw.lognormvariate(7.6, 1.0)) % 32768 + 1,
    "two kinds": lambda draw: draw.randint(200, 2000) if draw.random() < 0.85 else draw.randint(24576, 40960),
    "uniform": lambda draw: draw.randint(200, 8192),
    "uniform to the budget": lambda draw: draw.randint(200, 40960),
}
LAYOUTS = {"plain": ParallelLayout(dp=16), "interleaved": ParallelLayout(dp=16, pp=4, vpp=2)}


@dataclass(frozen=True)
class Setting:
    """One family of lengths under one seed and layout."""

    family: str
    layout: str
    seed: int

    def plan(self, objective: str, **options: object) -> Schedule:
        draw = random.Random(self.seed)
        lengths = [FAMILIES[self.family](draw) for _ in range(1024)]
        return build_dp_schedule(
            lengths,
            layout=LAYOUTS[self.layout],
            global_batch_size=1024 if "rollout_ids" not in options else 256,
            cost=COST,
            objective=objective,
            **{"batching": TokenBudget(max_tokens_per_gpu=40960), **options},
        )


SETTINGS = [Setting(family, layout, seed) for family in FAMILIES for layout in LAYOUTS for seed in (1, 2)]
each = pytest.mark.parametrize("setting", SETTINGS, ids=str)


def assert_even_ranks(plan: Schedule) -> None:
    """Within 0.05% of the bound, however little of the budget is free."""
    assert plan.report().total.imbalance_gap <= 0.0005


def assert_even_rows(plan: Schedule) -> None:
    """Within 0.5% of the bound, whatever the lengths."""
    assert plan.report().total.lockstep_gap <= 0.005


@each
def test_ranks_are_even_under_step(setting: Setting) -> None:
    assert_even_ranks(setting.plan("step"))


@each
def test_rows_are_near_their_bound_under_lockstep(setting: Setting) -> None:
    assert_even_rows(setting.plan("lockstep"))


@each
def test_balanced_pays_at_most_half_a_percent_of_lockstep_and_gains_more(setting: Setting) -> None:
    lockstep, balanced = (setting.plan(objective).report().total for objective in ("lockstep", "balanced"))
    paid = balanced.lockstep / lockstep.lockstep - 1
    assert paid <= 0.005 + 1e-9
    assert lockstep.imbalance - balanced.imbalance >= (balanced.lockstep - lockstep.lockstep) - 1e-9


@each
def test_padding_and_siblings_change_nothing_of_that(setting: Setting) -> None:
    padded = TokenBudget(max_tokens_per_gpu=40960, sequence_align=128, pack_align=512)
    siblings = [k // 4 for k in range(1024)]
    plan = setting.plan("lockstep", batching=padded, rollout_ids=siblings)
    assert plan.report().total.rollouts == 256
    assert_even_rows(plan)
    assert_even_ranks(setting.plan("step", batching=padded, rollout_ids=siblings))


@each
def test_a_fixed_size_is_balanced_too(setting: Setting) -> None:
    assert setting.plan("step", batching=FixedSize(micro_batch_size=8)).report().total.imbalance_gap <= 0.0005


def test_a_larger_count_is_taken_where_it_pays_and_says_so() -> None:
    """Eight stages idle while four micro-batches fill them; with more, the simulated step is shorter."""
    plan = build_dp_schedule(
        [1000] * 64,
        layout=ParallelLayout(dp=2, pp=8),
        batching=TokenBudget(max_tokens_per_gpu=8000),
        global_batch_size=64,
        objective="pipeline",
    )
    step = plan.steps[0]
    assert step.bounds.micro_batches == 4
    assert step.num_micro_batches == 7
    assert [reason.rule for reason in step.reasons] == ["tokens", "cheaper", "cheaper", "cheaper"]
    assert "lower the pipeline cost by" in step.reasons[-1].why


def test_a_larger_count_that_does_not_pay_is_not_taken() -> None:
    plan = build_dp_schedule(
        [1000] * 64,
        layout=ParallelLayout(dp=2),
        batching=TokenBudget(max_tokens_per_gpu=8000),
        global_batch_size=64,
        objective="lockstep",
    )
    assert plan.steps[0].num_micro_batches == 4


def test_a_count_that_does_not_pay_hides_none_that_does() -> None:
    """With 7 micro-batches the plan stays more than 2% above its bound, as with 6; with 8 it meets it."""
    draw = random.Random(244441)
    lengths = [
        32768 if draw.random() < 0.15 else min(32768, int(draw.lognormvariate(7.6, 1.0)) + 1) for _ in range(1470)
    ]
    plan = build_dp_schedule(
        lengths,
        layout=ParallelLayout(dp=32),
        batching=TokenBudget(max_tokens_per_gpu=65536),
        global_batch_size=1470,
        cost=COST,
        objective="lockstep",
    )
    step = plan.steps[0]
    assert (step.bounds.micro_batches, step.num_micro_batches) == (6, 8)
    assert [reason.micro_batches for reason in step.reasons] == [6, 8]
    assert_even_rows(plan)


def arrival_makespan(lengths: list[int], layout: ParallelLayout, cap: int) -> float:
    """The simulated makespan of arrival-order first-fit bins, dealt round robin, as produced."""
    bins: list[list[int]] = []
    for length in lengths:
        for held in bins:
            if sum(held) + length <= cap:
                held.append(length)
                break
        else:
            bins.append([length])
    costs = [sum(map(COST, held)) for held in bins]
    return max(pipeline_makespan(costs[rank :: layout.dp], pp=layout.pp) for rank in range(layout.dp))


def arrival_order(plan: Schedule) -> float:
    """The simulated makespan of the same micro-batches when every rank runs them as their samples arrived."""
    step, layout = plan.steps[0], plan.layout
    return max(
        pipeline_makespan([cost for _, cost in sorted(zip(map(min, rank), costs, strict=True))], pp=layout.pp)
        for rank, costs in zip(step.micro_batches, step.costs, strict=True)
    )


@pytest.mark.parametrize("family", ["heavy tail", "truncation spike"])
def test_the_simulated_pipeline_is_15_percent_shorter_than_in_arrival_order(family: str) -> None:
    """Sum of five seeds; graded micro-batches are also shorter than even ones in their best simple order."""
    layout = ParallelLayout(dp=2, pp=8)
    planned = arrived = same = longest = even = 0.0
    for seed in range(5):
        draw = random.Random(seed)
        lengths = [FAMILIES[family](draw) for _ in range(512)]
        options = {
            "layout": layout,
            "batching": TokenBudget(max_tokens_per_gpu=32768),
            "global_batch_size": 512,
            "cost": COST,
        }
        plan = build_dp_schedule(lengths, objective="pipeline", **options)
        planned += plan.report().total.makespan
        same += arrival_order(plan)
        arrived += arrival_makespan(lengths, layout, 32768)
        even += build_dp_schedule(lengths, objective="lockstep", **options).report().total.makespan
        longest_first = build_dp_schedule(lengths, objective="pipeline", micro_batch_order="longest_first", **options)
        longest += longest_first.report().total.makespan
    assert planned <= 0.85 * arrived
    assert planned <= 0.85 * same
    assert planned <= 0.97 * even
    assert planned < longest


@dataclass(frozen=True)
class Wide:
    """Samples of two kinds, or with a spike, on many ranks; `far` is how far from the bound their plan may be."""

    short: float
    long: tuple[int, int]
    samples: int
    dp: int
    budget: int
    far: float
    pp: int = 1

    def plan(self, objective: str) -> Schedule:
        draw = random.Random(7)
        lengths = [
            draw.randint(200, 2000) if draw.random() < self.short else draw.randint(*self.long)
            for _ in range(self.samples)
        ]
        return build_dp_schedule(
            lengths,
            layout=ParallelLayout(dp=self.dp, pp=self.pp, vpp=2 if self.pp > 1 else 1),
            batching=TokenBudget(max_tokens_per_gpu=self.budget),
            global_batch_size=self.samples,
            cost=COST,
            objective=objective,
        )


WIDE = [
    Wide(0.50, (19660, 32768), 317, 4, 49152, far=0.002),
    Wide(0.85, (24576, 40960), 1403, 64, 61440, far=0.012),
    Wide(0.85, (19660, 32768), 574, 64, 32768, far=0.03, pp=4),
    Wide(0.85, (19660, 32768), 577, 64, 131072, far=0.05, pp=4),
    Wide(0.85, (19660, 32768), 779, 32, 65536, far=0.005, pp=4),
]


@pytest.mark.parametrize("wide", WIDE, ids=str)
@pytest.mark.parametrize("objective", ["step", "lockstep"])
def test_few_long_samples_on_many_ranks(wide: Wide, objective: str) -> None:
    """Short samples fill what long ones leave, and rows that the pipeline asks for cost next to nothing."""
    total = wide.plan(objective).report().total
    assert (total.imbalance_gap if objective == "step" else total.lockstep_gap) <= wide.far
