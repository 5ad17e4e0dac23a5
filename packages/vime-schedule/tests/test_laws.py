"""Laws S1 to S7 of every plan, searched for a counterexample; VIME_EXAMPLES=10000 is the thorough run.

Each law is a function of a call and its plan; one search checks all of them on every plan it draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from math import fsum, isclose

from hypothesis import assume, given
from hypothesis import strategies as st

from vime_schedule import (
    FixedSize,
    ParallelLayout,
    PolynomialCost,
    Schedule,
    ScheduleError,
    TokenBudget,
    build_dp_schedule,
    token_cost,
)

COSTS = {
    "tokens": token_cost,
    "attention": PolynomialCost(0.0, 3000.0, 1.0),
    "flat": PolynomialCost(7.0, 0.0, 0.0),
    "falling": lambda length: 1e6 / length,
    "nothing": lambda length: 0.0,
}


@dataclass(frozen=True)
class Case:
    """Arguments of one call."""

    lengths: list[int]
    options: dict[str, object]
    cost: str

    def plan(self) -> Schedule:
        return build_dp_schedule(self.lengths, cost=COSTS[self.cost], **self.options)


@st.composite
def layouts(draw: st.DrawFn) -> ParallelLayout:
    dp, cp = draw(st.integers(1, 5)), draw(st.sampled_from([1, 1, 2, 4]))
    if draw(st.booleans()):
        return ParallelLayout(dp=dp, cp=cp, pp=draw(st.integers(1, 3)))
    pp = draw(st.integers(2, 3))
    group = draw(st.none() | st.integers(pp, pp + 3))
    return ParallelLayout(dp=dp, cp=cp, pp=pp, vpp=2, microbatch_group_size_per_vp_stage=group)


@st.composite
def budgets(draw: st.DrawFn) -> TokenBudget | FixedSize:
    if draw(st.integers(0, 3)) == 0:
        return FixedSize(micro_batch_size=draw(st.integers(1, 6)))
    pack_align = draw(st.sampled_from([1, 1, 8]))
    return TokenBudget(
        max_tokens_per_gpu=draw(st.integers(max(20, pack_align), 400)),
        sequence_align=draw(st.sampled_from([1, 1, 4])),
        pack_align=pack_align,
        cp_layout=draw(st.sampled_from(["zigzag", "contiguous"])),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    count = draw(st.integers(1, 60))
    longest = draw(st.sampled_from([3, 120, 600, 3000]))
    lengths = draw(st.lists(st.integers(1, longest), min_size=count, max_size=count))
    ids = draw(st.none() | st.lists(st.integers(0, max(1, count // 2)), min_size=count, max_size=count))
    kinds = draw(st.none() | st.none() | st.lists(st.sampled_from(["text", "image"]), min_size=count, max_size=count))
    options = {
        "layout": draw(layouts()),
        "batching": draw(budgets()),
        "global_batch_size": draw(st.integers(1, 40)),
        "rollout_ids": ids,
        "objective": draw(st.sampled_from(["step", "lockstep", "balanced", "pipeline"])),
        "remainder": draw(st.sampled_from(["step", "spread", "drop"])),
        "oversize": draw(st.sampled_from(["alone", "drop"])),
        "shortage": draw(st.sampled_from(["error", "fill", "fill"])),
        "signatures": kinds,
        "micro_batch_order": draw(st.sampled_from(["pipeline", "longest_first"])),
    }
    return Case(lengths, options, draw(st.sampled_from(sorted(COSTS))))


@st.composite
def plans(draw: st.DrawFn) -> tuple[Case, Schedule]:
    case = draw(cases())
    try:
        return case, case.plan()
    except ScheduleError:
        assume(False)
        raise


def samples_of(schedule: Schedule) -> list[int]:
    return [p for step in schedule.steps for rank in step.micro_batches for held in rank for p in held]


def s1_every_sample_once_or_dropped_by_a_policy(case: Case, schedule: Schedule) -> None:
    assert sorted([*samples_of(schedule), *schedule.dropped]) == list(range(len(case.lengths)))
    if case.options["remainder"] != "drop" and case.options["oversize"] != "drop":
        assert schedule.dropped == ()


def s2_equal_and_legal_counts(_: Case, schedule: Schedule) -> None:
    layout = schedule.layout
    for step in schedule.steps:
        assert len(step.micro_batches) == layout.dp
        (count,) = {len(rank) for rank in step.micro_batches}
        assert count == step.num_micro_batches >= 1
        if layout.vpp > 1:
            group = layout.microbatch_group_size_per_vp_stage or layout.pp
            assert layout.pp <= group <= count
            assert count % group == 0 or count % group >= layout.pp


def held_tokens(lengths: list[int], layout: ParallelLayout, budget: TokenBudget) -> int:
    """Padded tokens on one GPU, written out from law S3."""
    cp, a, pack = layout.cp, budget.sequence_align, budget.pack_align
    if cp > 1 and budget.cp_layout == "contiguous":
        stream = sum(-(-length // a) * a for length in lengths)
        return -(-stream // (cp * pack)) * pack
    if cp > 1:
        held = sum(2 * -(-length // (2 * cp * a)) * a for length in lengths)
    else:
        held = sum(-(-length // a) * a for length in lengths)
    return -(-held // pack) * pack


def s3_the_budget_is_a_hard_cap(case: Case, schedule: Schedule) -> None:
    batching = case.options["batching"]
    for step in schedule.steps:
        for held in chain.from_iterable(step.micro_batches):
            lengths = [case.lengths[p] for p in held]
            if isinstance(batching, FixedSize):
                assert len(held) <= batching.micro_batch_size
            elif held_tokens(lengths, schedule.layout, batching) > batching.max_tokens_per_gpu:
                assert len(held) == 1
                assert held[0] in schedule.oversize
    if isinstance(batching, TokenBudget):
        for position in schedule.oversize:
            assert held_tokens([case.lengths[position]], schedule.layout, batching) > batching.max_tokens_per_gpu


def s4_a_rollout_trains_in_one_step(case: Case, schedule: Schedule) -> None:
    ids = case.options["rollout_ids"] or list(range(len(case.lengths)))
    seen: set[int] = set()
    for step in schedule.steps:
        here = {ids[p] for rank in step.micro_batches for held in rank for p in held}
        assert not here & seen
        assert step.global_batch_size == len(here)
        seen |= here


def s5_equal_input_gives_equal_bytes(case: Case, schedule: Schedule) -> None:
    assert case.plan().to_json() == schedule.to_json()
    assert case.plan().fingerprint == schedule.fingerprint


def s6_only_asked_for_fillers_are_empty(case: Case, schedule: Schedule) -> None:
    for step in schedule.steps:
        if case.options["shortage"] == "error":
            assert step.num_fillers == 0
        assert step.num_fillers == sum(held == () for held in chain.from_iterable(step.micro_batches))


def s7_figures_follow_from_plan_and_lengths(case: Case, schedule: Schedule) -> None:
    cost, dp = COSTS[case.cost], schedule.layout.dp
    report = schedule.report()
    for step, figures in zip(schedule.steps, report.steps, strict=True):
        costs = [[fsum(float(cost(case.lengths[p])) for p in held) for held in rank] for rank in step.micro_batches]
        mean = fsum(chain.from_iterable(costs)) / dp
        assert [list(rank) for rank in step.costs] == costs
        if mean:
            assert isclose(figures.imbalance, max(map(fsum, costs)) / mean)
            assert isclose(figures.lockstep, fsum(map(max, zip(*costs, strict=True))) / mean)
        assert figures.samples == sum(map(len, chain.from_iterable(step.micro_batches)))
        assert figures.micro_batches == len(step.micro_batches[0])
        assert figures.imbalance_gap >= 0
        assert figures.imbalance_bound <= figures.imbalance * (1 + 1e-6)
        assert figures.lockstep_bound <= figures.lockstep * (1 + 1e-6)
        assert figures.makespan_bound <= figures.makespan * (1 + 1e-6)
        assert 0 <= figures.bubble_fraction < 1
        assert 0 <= figures.padding_fraction < 1
        assert 0 < figures.fill_fraction <= 1
        assert figures.micro_batches_bound <= figures.micro_batches
    assert report.dropped == len(schedule.dropped)
    assert report.total.samples == len(case.lengths) - len(schedule.dropped)


def micro_batch_k_has_one_signature_on_all_ranks(case: Case, schedule: Schedule) -> None:
    kinds = case.options["signatures"]
    if kinds is None:
        return
    for step in schedule.steps:
        for row in zip(*step.micro_batches, strict=True):
            assert len({kinds[p] for held in row for p in held}) <= 1


def a_plan_survives_json_and_its_own_check(case: Case, schedule: Schedule) -> None:
    assert Schedule.from_json(schedule.to_json()) == schedule
    schedule.validate(case.lengths)


def a_rank_gets_its_part_of_the_plan(_: Case, schedule: Schedule) -> None:
    for rank in range(schedule.layout.dp):
        part = schedule.for_rank(rank)
        assert list(chain.from_iterable(part.micro_batch_indices)) == list(range(len(part.partition)))
        assert sum(part.num_microbatches) == len(part.micro_batch_indices)
        planned_here = [held for step in schedule.steps for held in step.micro_batches[rank]]
        assert [tuple(part.partition[i] for i in held) for held in part.micro_batch_indices] == planned_here


def reasons_account_for_the_count(_: Case, schedule: Schedule) -> None:
    for step in schedule.steps:
        counts = [reason.micro_batches for reason in step.reasons]
        assert counts == sorted(counts)
        assert counts[-1] == step.num_micro_batches
        assert all(reason.why for reason in step.reasons)


LAWS = [
    s1_every_sample_once_or_dropped_by_a_policy,
    s2_equal_and_legal_counts,
    s3_the_budget_is_a_hard_cap,
    s4_a_rollout_trains_in_one_step,
    s5_equal_input_gives_equal_bytes,
    s6_only_asked_for_fillers_are_empty,
    s7_figures_follow_from_plan_and_lengths,
    micro_batch_k_has_one_signature_on_all_ranks,
    a_plan_survives_json_and_its_own_check,
    a_rank_gets_its_part_of_the_plan,
    reasons_account_for_the_count,
]


@given(plans())
def test_every_law_holds(planned: tuple[Case, Schedule]) -> None:
    for law in LAWS:
        law(*planned)


@given(cases())
def test_equal_input_gives_equal_refusals(case: Case) -> None:
    texts = set()
    for _ in range(2):
        try:
            case.plan()
        except ScheduleError as error:
            texts.add(str(error))
        else:
            texts.add("")
    assert len(texts) == 1


def test_a_filler_beside_signatures_frees_a_rank_of_a_sample() -> None:
    """Found by the search: with fillers a rank need not hold a sample in every micro-batch, whatever their number."""
    options = {
        "layout": ParallelLayout(dp=2),
        "batching": FixedSize(micro_batch_size=2),
        "global_batch_size": 4,
        "signatures": ["text", "text", "image", "text"],
        "shortage": "fill",
    }
    case = Case([1, 1, 1, 2], {**options, "rollout_ids": None, "remainder": "step", "oversize": "alone"}, "attention")
    schedule = case.plan()
    for law in LAWS:
        law(case, schedule)


def test_siblings_out_of_order_keep_their_lengths() -> None:
    """Found by the search: rollouts reorder the samples of a step, and every sample keeps its own tokens and cost."""
    options = {
        "layout": ParallelLayout(),
        "batching": TokenBudget(max_tokens_per_gpu=20),
        "global_batch_size": 2,
        "rollout_ids": [*[0] * 17, 1, 0],
        "signatures": None,
        "shortage": "error",
    }
    case = Case([*[1] * 18, 9], {**options, "remainder": "step", "oversize": "alone"}, "attention")
    schedule = case.plan()
    for law in LAWS:
        law(case, schedule)
