"""Drawings: well-formed, self-contained, true to the plan, and small for many ranks."""

from __future__ import annotations

import random
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vime_schedule import FixedSize, ParallelLayout, Schedule, TokenBudget, build_dp_schedule, simulate
from vime_schedule._render._pick import pick_ranks
from vime_schedule._render._plan_page import plan_page
from vime_schedule._render._plan_svg import plan_chart
from vime_schedule._render._plan_text import plan_lines
from vime_schedule._render._svg import Chart, label, legend, rect
from vime_schedule._render._text import plain
from vime_schedule._render._timeline_page import timeline_page
from vime_schedule._render._timeline_svg import timeline_chart, timeline_svg
from vime_schedule._render._timeline_text import timeline_lines

SVG = "{http://www.w3.org/2000/svg}"


def planned(
    samples: int = 96, *, layout: ParallelLayout, budget: int = 4096, seed: int = 0, **options: object
) -> Schedule:
    rng = random.Random(seed)
    lengths = [min(3 * budget // 2, int(rng.lognormvariate(6, 1)) + 1) for _ in range(samples)]
    return build_dp_schedule(
        lengths,
        layout=layout,
        batching=TokenBudget(max_tokens_per_gpu=budget, sequence_align=64),
        global_batch_size=samples,
        **options,  # type: ignore[arg-type]
    )


@pytest.fixture(
    params=[
        {"layout": ParallelLayout()},
        {"layout": ParallelLayout(dp=4, pp=4, vpp=2)},
        {"layout": ParallelLayout(dp=3, cp=2, pp=2), "budget": 500},
        {"layout": ParallelLayout(dp=200, pp=1), "samples": 700},
        {"layout": ParallelLayout(dp=8, pp=4, vpp=2), "samples": 9, "shortage": "fill"},
    ],
    ids=["one-rank", "interleaved", "oversize", "200-ranks", "fillers"],
)
def schedule(request: pytest.FixtureRequest) -> Schedule:
    return planned(**request.param)


def as_xml(html: str) -> ElementTree.Element:
    """Parse a page; ours are written as XML, so one unclosed tag or raw ampersand fails."""
    assert html.startswith("<!DOCTYPE html>\n")
    return ElementTree.fromstring(html.partition("\n")[2])


def rects(chart: Chart, *styles: str) -> list[ElementTree.Element]:
    """Return the boxes of the given colours."""
    return [box for box in ElementTree.fromstring(f"<g>{chart.body}</g>").iter("rect") if box.get("class") in styles]


def test_page_is_well_formed_and_self_contained(schedule: Schedule) -> None:
    html = plan_page(schedule)
    tree = as_xml(html)
    assert [child.tag for child in tree] == ["head", "body"]
    for element in tree.iter():
        assert element.tag not in ("script", "link", "img", "iframe", "use", "image")
        assert not {"href", "src", "{http://www.w3.org/1999/xlink}href"} & set(element.attrib)
    assert not re.search(r"https?://|@import|url\(", html)
    text = " ".join(tree.itertext())
    assert schedule.fingerprint in text
    assert f"{schedule.report().total.imbalance:.4f}" in text


def test_page_has_a_light_and_a_dark_value_for_every_colour_it_uses(schedule: Schedule) -> None:
    html = plan_page(schedule)
    light, dark = html.split("@media (prefers-color-scheme:dark)")[:2]
    for name in set(re.findall(r"var\(--([a-z0-9]+)\)", html)):
        assert f"--{name}:#" in light
        assert f"--{name}:#" in dark


def test_every_box_class_has_a_colour(schedule: Schedule) -> None:
    html = plan_page(schedule)
    coloured = set(re.findall(r"\.chart \.([a-z0-9]+)\{", html))
    used = {element.get("class") for element in as_xml(html).iter() if element.tag in ("rect", "path", "line", "text")}
    assert {name for name in used if name} <= coloured


def test_boxes_are_as_wide_as_their_cost_and_as_high_as_their_fill() -> None:
    schedule = planned(layout=ParallelLayout(dp=4))
    step = schedule.steps[0]
    boxes = [box for box in rects(plan_chart(schedule, 0), "even", "odd", "oversize") if len(box)]
    costs = [cost for rank in step.costs for cost in rank]
    assert len(boxes) == len(costs)
    scale = (960 - 64 - 62) / max(step.rank_costs)
    assert [float(box.get("width", 0)) + 1 for box in boxes] == pytest.approx(
        [cost * scale for cost in costs], abs=0.01
    )
    members = [members for rank in step.micro_batches for members in rank]
    for box, positions in zip(boxes, members, strict=True):
        fill = min(1.0, sum(schedule.total_lengths[p] for p in positions) / 4096)
        assert float(box.get("height", 0)) == pytest.approx(24 * fill, abs=0.02)
        assert f"{len(positions)} sample(s)" in "".join(box.itertext())


def test_fillers_and_oversize_samples_are_marked_and_explained() -> None:
    filled = planned(samples=9, layout=ParallelLayout(dp=8, pp=4, vpp=2), shortage="fill")
    chart = plan_chart(filled, 0)
    assert (
        sum("filler, no sample" in "".join(box.itertext()) for box in rects(chart, "mark"))
        == filled.steps[0].num_fillers
    )
    assert ">filler</text>" in chart.body
    large = planned(layout=ParallelLayout(dp=2), budget=500)
    assert len([box for box in rects(plan_chart(large, 0), "oversize") if len(box)]) == len(large.oversize) > 0
    assert "above the budget, alone" in plan_chart(large, 0).body


def test_many_ranks_stay_small_and_say_so() -> None:
    chart = plan_chart(planned(samples=3000, layout=ParallelLayout(dp=1000)), 0)
    assert "256 of 1000 ranks" in chart.body
    assert chart.height < 1000
    assert len(chart.body) < 2_000_000


def test_timeline_boxes_follow_the_simulation() -> None:
    timeline = simulate([3.0, 1.0, 2.0, 1.0], layout=ParallelLayout(pp=4, vpp=2))
    chart = timeline_chart(timeline)
    boxes = [box for box in rects(chart, "f0", "f1", "b0", "b1") if len(box)]
    slots = [slot for stage in timeline.stages for slot in stage]
    scale = (960 - 64 - 62) / timeline.makespan
    assert [float(box.get("x", 0)) for box in boxes] == pytest.approx(
        [64 + slot.start * scale for slot in slots], abs=0.01
    )
    assert [box.get("class", "")[0] for box in boxes] == ["b" if slot.operation.backward else "f" for slot in slots]


def test_long_timelines_become_paths() -> None:
    chart = timeline_chart(simulate([1.0] * 1000, layout=ParallelLayout(pp=8)))
    assert len(rects(chart, "f0", "b0")) == 2  # only the legend
    assert chart.body.count("<path") == 16
    assert len(chart.body) < 1_000_000


def test_standalone_svg_is_well_formed_and_brings_its_colours() -> None:
    text = timeline_svg(simulate([1.0, 2.0], layout=ParallelLayout(pp=2)))
    tree = ElementTree.fromstring(text)
    assert tree.tag == f"{SVG}svg"
    style = "".join(tree.find(f"{SVG}style").itertext())  # type: ignore[union-attr]
    assert "prefers-color-scheme:dark" in style
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(", text)


def test_every_text_and_attribute_is_escaped() -> None:
    drawing = label(0, 0, "a<b", "muted") + rect(0, 0, 1, 1, 'x"y', "c&d") + legend(0, 0, [("even", "e>f")])
    tree = ElementTree.fromstring(f"<g>{drawing}</g>")
    assert "".join(tree.itertext()) == "a<bc&de>f"
    assert 'x"y' in {box.get("class") for box in tree.iter("rect")}


def test_timeline_page_escapes_its_title() -> None:
    html = timeline_page(simulate([1.0], layout=ParallelLayout(pp=2)), "a <b> & c")
    assert "a <b> & c" in " ".join(as_xml(html).itertext())


@given(st.integers(20, 200), st.integers(1, 40), st.integers(1, 20))
def test_text_charts_fit_any_width(width: int, dp: int, limit: int) -> None:
    schedule = planned(samples=max(96, dp), layout=ParallelLayout(dp=dp))
    lines = [plain(line) for line in plan_lines(schedule.steps[0], width=width, limit=limit)]
    bars = [line for line in lines if "│" in line]
    assert len(bars) == min(dp, limit)
    assert max(map(len, bars)) <= max(width, 8 + 2 + 7 + len(f"rank {dp - 1} "))


@given(st.lists(st.floats(0.1, 9), min_size=4, max_size=16), st.integers(1, 6), st.integers(30, 200))
def test_text_timelines_are_busy_where_the_simulation_is(costs: list[float], pp: int, width: int) -> None:
    timeline = simulate(costs, layout=ParallelLayout(pp=pp))
    for stage, line in enumerate(timeline_lines(timeline, width=width)):
        row = plain(line).split("│")[1]
        assert len(plain(line)) <= width
        idle = row.count("·") / len(row)
        assert idle == pytest.approx(1 - timeline.busy(stage) / timeline.makespan, abs=(2 * len(costs) + 1) / len(row))


@given(st.lists(st.floats(0, 9), min_size=1, max_size=40), st.integers(2, 20))
def test_picked_ranks_hold_the_slowest_and_the_fastest(costs: list[float], limit: int) -> None:
    picked = pick_ranks(costs, limit)
    assert picked == sorted(set(picked))
    assert len(picked) <= limit
    assert max(costs[rank] for rank in picked) == max(costs)
    assert min(costs[rank] for rank in picked) == min(costs)


def test_plans_that_cost_nothing_draw_too() -> None:
    schedule = planned(layout=ParallelLayout(dp=2, pp=2), cost=lambda length: 0)
    assert "0.0%" in " ".join(as_xml(plan_page(schedule)).itertext())
    assert plan_lines(schedule.steps[0], width=80)
    timeline = simulate(schedule.steps[0].costs[0], layout=schedule.layout)
    assert "100.0%" in plain(timeline_lines(timeline, width=80)[0])


def test_fixed_size_batches_draw_too() -> None:
    schedule = build_dp_schedule(
        [5, 6, 7, 8], layout=ParallelLayout(dp=2), batching=FixedSize(micro_batch_size=2), global_batch_size=4
    )
    assert "2 samples per micro-batch" in " ".join(as_xml(plan_page(schedule)).itertext())


def test_many_steps_are_all_in_the_table() -> None:
    schedule = build_dp_schedule(
        [5] * 40, layout=ParallelLayout(), batching=FixedSize(micro_batch_size=2), global_batch_size=4
    )
    page = as_xml(plan_page(schedule))
    assert len(list(page.iter("tr"))) == 1 + 10 + 1
    assert len(list(page.iter("svg"))) == 4 * 3
