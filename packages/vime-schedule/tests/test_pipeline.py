"""The pipeline simulation against a slow oracle, closed forms and Megatron's rules."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vime_schedule import ParallelLayout, ScheduleError, simulate
from vime_schedule._pipeline import pipeline_makespan
from vime_schedule._pipeline._order import stage_order

COSTS = st.lists(st.floats(0.01, 100.0), min_size=1, max_size=24)


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[list[float], ParallelLayout]:
    """Costs of a legal number of micro-batches, and the pipeline that runs them."""
    pp = draw(st.integers(1, 6))
    vpp = draw(st.integers(1, 4)) if pp > 1 else 1
    group = draw(st.none() | st.integers(pp, pp + 6)) if vpp > 1 else None
    layout = ParallelLayout(pp=pp, vpp=vpp, microbatch_group_size_per_vp_stage=group)
    count = layout.next_legal(draw(st.integers(1, 24)))
    return draw(st.lists(st.floats(0.01, 100.0), min_size=count, max_size=count)), layout


def event_driven_makespan(costs: list[float], layout: ParallelLayout, ratio: float, transfer: float = 0.0) -> float:
    """Tick a global clock from event to event and start whatever may start: slow, obvious, and shares no code."""
    pp, vpp, count = layout.pp, layout.vpp, len(costs)
    group = layout.microbatch_group_size_per_vp_stage or pp
    chunks = pp * vpp
    todo: list[list[tuple[str, int, int]]] = []
    for stage in range(pp):
        slots = [(c, m) for g in range(0, count, group) for c in range(vpp) for m in range(g, min(g + group, count))]
        if vpp == 1:
            slots, warm = [(0, m) for m in range(count)], pp - stage - 1
        else:
            warm = (pp - stage - 1) * 2 + (vpp - 1) * group
        forward = [("F", c * pp + stage, m) for c, m in slots]
        backward = [("B", (vpp - 1 - c) * pp + stage, m) for c, m in slots]
        order = []
        while forward or backward:
            done_forward = len(slots) - len(forward)
            done_backward = len(slots) - len(backward)
            take_forward = forward and done_forward < done_backward + warm + 1
            order.append(forward.pop(0) if take_forward else backward.pop(0))
        todo.append(order)
    finished: dict[tuple[str, int, int], float] = {}
    running: list[tuple[str, int, int] | None] = [None] * pp
    until = [0.0] * pp
    now = 0.0
    while any(todo) or any(running):
        for stage in range(pp):
            job = running[stage]
            if job is not None and until[stage] <= now:
                finished[job], running[stage] = until[stage], None
        for stage in range(pp):
            if running[stage] is None and todo[stage]:
                kind, chunk, m = todo[stage][0]
                if kind == "F":
                    needs = None if chunk == 0 else ("F", chunk - 1, m)
                else:
                    needs = ("F", chunk, m) if chunk == chunks - 1 else ("B", chunk + 1, m)
                hop = transfer if needs is not None and needs[1] != chunk and pp > 1 else 0.0
                if needs is None or (needs in finished and finished[needs] + hop <= now):
                    running[stage] = todo[stage].pop(0)
                    until[stage] = now + costs[m] / chunks * (ratio if kind == "B" else 1.0)
        waiting = [until[stage] for stage in range(pp) if running[stage] is not None]
        waiting += [end + transfer for end in finished.values() if end + transfer > now]
        now = min((time for time in waiting if time > now), default=now)
    return max(finished.values())


@given(pipelines(), st.sampled_from([0.5, 1.0, 2.0, 3.0]))
def test_makespan_equals_the_event_driven_oracle(pipeline: tuple[list[float], ParallelLayout], ratio: float) -> None:
    costs, layout = pipeline
    group = layout.microbatch_group_size_per_vp_stage
    fast = pipeline_makespan(costs, pp=layout.pp, vpp=layout.vpp, group=group, backward_ratio=ratio)
    assert math.isclose(fast, event_driven_makespan(costs, layout, ratio), rel_tol=1e-9)


@given(pipelines(), st.sampled_from([0.0, 0.25, 3.0]))
def test_timeline_equals_the_event_driven_oracle_with_transfers(
    pipeline: tuple[list[float], ParallelLayout], transfer: float
) -> None:
    costs, layout = pipeline
    timeline = simulate(costs, layout=layout, transfer=transfer)
    assert math.isclose(timeline.makespan, event_driven_makespan(costs, layout, 2.0, transfer), rel_tol=1e-9)


@given(pipelines())
def test_timeline_runs_everything_once_in_order_after_its_input(pipeline: tuple[list[float], ParallelLayout]) -> None:
    costs, layout = pipeline
    timeline = simulate(costs, layout=layout)
    last = layout.pp * layout.vpp - 1
    ends = {}
    for stage, slots in enumerate(timeline.stages):
        for slot in slots:
            key = (slot.operation.backward, slot.operation.chunk * layout.pp + stage, slot.operation.micro_batch)
            assert key not in ends
            ends[key] = slot.end
        assert all(before.end <= after.start for before, after in pairwise(slots))
    assert len(ends) == 2 * len(costs) * (last + 1)
    for stage, slots in enumerate(timeline.stages):
        for slot in slots:
            backward, chunk, m = slot.operation.backward, slot.operation.chunk * layout.pp + stage, slot.operation[2]
            if not backward and chunk:
                assert ends[False, chunk - 1, m] <= slot.start
            if backward:
                assert ends[(False, chunk, m) if chunk == last else (True, chunk + 1, m)] <= slot.start


@given(pipelines())
def test_makespan_is_bounded_and_bubble_is_its_idle_share(pipeline: tuple[list[float], ParallelLayout]) -> None:
    costs, layout = pipeline
    timeline = simulate(costs, layout=layout)
    busy = 3.0 * sum(costs) / layout.pp
    assert timeline.makespan >= busy * (1 - 1e-9)
    assert timeline.makespan >= 3.0 * max(costs) * (1 - 1e-9)  # its dearest micro-batch passes every stage twice
    assert timeline.makespan <= 3.0 * sum(costs) * (1 + 1e-9)
    assert math.isclose(timeline.bubble_fraction, 1 - busy / timeline.makespan, abs_tol=1e-9)


@pytest.mark.parametrize(("pp", "count"), [(1, 3), (2, 1), (2, 4), (4, 4), (4, 16), (8, 3), (8, 32)])
def test_equal_micro_batches_reach_the_closed_form_of_1f1b(pp: int, count: int) -> None:
    # (M + pp - 1) slots of one forward and one backward of a stage: Narayanan et al., SC 2021, section 2.2.1
    assert pipeline_makespan([8.0] * count, pp=pp) == pytest.approx((count + pp - 1) * 3 * 8.0 / pp)
    timeline = simulate([8.0] * count, layout=ParallelLayout(pp=pp))
    assert timeline.bubble_fraction == pytest.approx((pp - 1) / (count + pp - 1))


@pytest.mark.parametrize(("pp", "vpp", "count"), [(2, 2, 2), (4, 2, 4), (4, 2, 8), (4, 3, 16), (8, 4, 32)])
def test_equal_micro_batches_reach_the_closed_form_of_interleaving(pp: int, vpp: int, count: int) -> None:
    # the bubble shrinks by vpp: total = M * 3c/pp + (pp - 1) * 3c / (pp * vpp); section 2.2.2, for M % pp == 0
    expected = 3 * 8.0 / pp * (count + (pp - 1) / vpp)
    assert pipeline_makespan([8.0] * count, pp=pp, vpp=vpp) == pytest.approx(expected)
    assert simulate([8.0] * count, layout=ParallelLayout(pp=pp, vpp=vpp)).makespan == pytest.approx(expected)


def test_the_recipe_ratios_of_interleaving() -> None:
    # pp 4, vpp 2: M 4 to 8 shrinks the time over ideal from 1.375 to 1.188
    ideal = [pipeline_makespan([1.0] * count, pp=4, vpp=2) / (3 * count / 4) for count in (4, 8)]
    assert ideal == pytest.approx([1.375, 1.1875])


def test_order_of_1f1b_warms_up_one_less_per_stage() -> None:
    orders = [stage_order(stage, count=4, pp=3) for stage in range(3)]
    names = ["".join(("B" if op.backward else "F") + str(op.micro_batch) for op in order) for order in orders]
    assert names == ["F0F1F2B0F3B1B2B3", "F0F1B0F2B1F3B2B3", "F0B0F1B1F2B2F3B3"]


def test_order_of_interleaving_runs_groups_through_the_chunks() -> None:
    forwards = [op[1:] for op in stage_order(0, count=7, pp=2, vpp=2, group=4, forward_only=True)]
    first = [(c, m) for c in (0, 1) for m in (0, 1, 2, 3)]
    assert forwards == first + [(c, m) for c in (0, 1) for m in (4, 5, 6)]


def test_remainder_group_of_at_least_pp_is_legal_and_runs() -> None:
    # S38b: pp 4, group 8, M 12 is legal since 12 % 8 = 4 >= 4; others produce 16
    layout = ParallelLayout(pp=4, vpp=2, microbatch_group_size_per_vp_stage=8)
    assert simulate([1.0] * 12, layout=layout).makespan == pytest.approx(
        pipeline_makespan([1.0] * 12, pp=4, vpp=2, group=8)
    )


@pytest.mark.parametrize(("count", "group"), [(3, 4), (6, 4), (9, 4), (9, 8), (7, 3)])
def test_illegal_interleaving_is_refused_with_the_numbers(count: int, group: int) -> None:
    with pytest.raises(
        ScheduleError, match=rf"{count} micro-batches cannot be interleaved over pp=4 with group={group}"
    ):
        pipeline_makespan([1.0] * count, pp=4, vpp=2, group=group)


def test_simulate_names_the_next_legal_number() -> None:
    with pytest.raises(ScheduleError, match=r"6 micro-batches are not legal for .*pp=4, vpp=2.*next legal number is 8"):
        simulate([1.0] * 6, layout=ParallelLayout(pp=4, vpp=2))


@given(COSTS, st.integers(2, 6))
def test_forward_only_is_a_flow_shop(costs: list[float], pp: int) -> None:
    # equal stages: the classic bound sum + (pp - 1) * dearest, divided by pp, is attained
    timeline = simulate(costs, layout=ParallelLayout(pp=pp), forward_only=True)
    assert timeline.makespan == pytest.approx((sum(costs) + (pp - 1) * max(costs)) / pp)
    assert not any(slot.operation.backward for slots in timeline.stages for slot in slots)


def test_chunks_may_differ() -> None:
    # the last stage also runs the head: 1 + 3 forward, twice that backward, and the first stage waits for it
    timeline = simulate([[1.0, 1.0], [4.0, 4.0]], layout=ParallelLayout(pp=2))
    assert timeline.busy(0) == 6.0
    assert timeline.busy(1) == 24.0
    assert timeline.makespan == 1.0 + 24.0 + 2.0


def test_backward_costs_may_be_given() -> None:
    timeline = simulate([1.0, 1.0], layout=ParallelLayout(), backward_costs=[5.0, 7.0])
    assert [slot.end for slot in timeline.stages[0]] == [1.0, 6.0, 7.0, 14.0]


def test_activations_in_flight_fall_along_the_pipeline() -> None:
    timeline = simulate([1.0] * 8, layout=ParallelLayout(pp=4))
    assert [timeline.peak_in_flight(stage) for stage in range(4)] == [4, 3, 2, 1]


def test_inference_holds_no_activations() -> None:
    timeline = simulate([1.0] * 8, layout=ParallelLayout(pp=4), forward_only=True)
    assert [timeline.peak_in_flight(stage) for stage in range(4)] == [0, 0, 0, 0]


def test_micro_batches_that_cost_nothing_leave_no_bubble() -> None:
    timeline = simulate([0.0, 0.0], layout=ParallelLayout(pp=2))
    assert (timeline.makespan, timeline.bubble_fraction) == (0.0, 0.0)


@given(st.lists(st.floats(0.01, 100.0), min_size=8, max_size=8), st.integers(2, 50))
def test_makespan_scales_with_the_costs(costs: list[float], factor: int) -> None:
    scaled = pipeline_makespan([cost * factor for cost in costs], pp=4)
    assert scaled == pytest.approx(pipeline_makespan(costs, pp=4) * factor)


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [
        ({"costs": []}, r"`costs` has 0 rows"),
        ({"costs": [1.0, math.nan]}, r"`costs\[1\]` is nan"),
        ({"costs": [1.0, -1.0]}, r"`costs\[1\]` is -1.0: give a finite number, 0 or more"),
        ({"costs": [True]}, r"`costs\[0\]` is True"),
        ({"costs": [[1.0], [1.0, 2.0]]}, r"2 rows of \[1, 2\] micro-batches"),
        ({"costs": [[1.0]]}, r"pp \* vpp = 2 rows"),
        ({"costs": [[1.0], 2.0]}, r"`costs\[1\]` is 2.0 beside rows"),
        ({"costs": [[], []]}, r"rows of \[0\] micro-batches"),
        ({"costs": [1.0], "backward_costs": [1.0, 2.0]}, r"`backward_costs` has .* rows with 1 each"),
        ({"costs": [1.0], "backward_ratio": math.inf}, r"`backward_ratio` is inf"),
        ({"costs": [1.0], "transfer": -1}, r"`transfer` is -1"),
    ],
)
def test_bad_costs_are_refused_with_their_position(kwargs: dict[str, object], text: str) -> None:
    with pytest.raises(ScheduleError, match=text):
        simulate(layout=ParallelLayout(pp=2), **kwargs)  # type: ignore[arg-type]
