"""The page of a plan: figures against their bounds, ranks, pipeline, and why there are M micro-batches."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from vime_schedule._batching import TokenBudget
from vime_schedule._pipeline import pipeline_makespan, simulate
from vime_schedule._render._lengths_svg import lengths_chart
from vime_schedule._render._lockstep_svg import lockstep_chart
from vime_schedule._render._page import page, section, table, tiles
from vime_schedule._render._plan_svg import plan_chart
from vime_schedule._render._svg import element
from vime_schedule._render._timeline_svg import timeline_chart
from vime_schedule._report import ScheduleReport, StepReport
from vime_schedule._schedule import Schedule

MOST_STEPS = 4
MOST_ROWS = 200


def plan_page(schedule: Schedule) -> str:
    """Return the page; charts of the first four steps, figures of all."""
    report = schedule.report()
    samples = sum(step.num_samples for step in schedule.steps)
    title = f"{samples:,} samples on {schedule.layout}"
    bound = (
        f"{schedule.batching.max_tokens_per_gpu:,} tokens per GPU"
        if isinstance(schedule.batching, TokenBudget)
        else f"{schedule.batching.micro_batch_size} samples per micro-batch"
    )
    steps = len(schedule.steps)
    subtitle = f"{steps} optimizer step{'s' if steps > 1 else ''}, at most {bound}, objective {schedule.objective}"
    footer = f"vime-schedule, plan <code>{schedule.fingerprint}</code>"
    return page(title, subtitle, _content(schedule, report), footer)


def _content(schedule: Schedule, report: ScheduleReport) -> Iterator[str]:
    """Yield the cards from the most to the least important."""
    yield tiles(_figures(report.total, schedule))
    several = len(schedule.steps) > 1
    for number, step in enumerate(schedule.steps[:MOST_STEPS]):
        name = f"Step {number}: r" if several else "R"
        note = (
            "A box is a micro-batch: as wide as it costs, as high as it fills the budget. Right: share of the slowest."
        )
        yield section(f"{name}anks and their micro-batches", note, plan_chart(schedule, number))
        if schedule.layout.pp > 1:
            yield _pipeline_section(schedule, number)
        lockstep = section(
            "Lock-step", "What ranks wait for when they meet at every micro-batch.", lockstep_chart(step)
        )
        yield element("div", [lockstep, _lengths_section(schedule, number)], class_="pair")
        yield _reasons(schedule, number)
    if several:
        titles = ("step", "rollouts", "samples", "M", "imbalance", "lockstep", "bubble", "fill", "padding", "fillers")
        rows = [_row(str(number), step) for number, step in enumerate(report.steps[:MOST_ROWS])]
        yield element("section", [element("h2", ["All steps"]), table(titles, [*rows, _row("all", report.total)])])


def _figures(total: StepReport, schedule: Schedule) -> list[tuple[str, str, str]]:
    """Return the tiles."""
    dropped, alone = len(schedule.dropped), len(schedule.oversize)
    return [
        (
            "Imbalance",
            f"{total.imbalance:.4f}",
            f"slowest over mean rank; gap to bound {100 * total.imbalance_gap:.2f}%",
        ),
        ("Lock-step", f"{total.lockstep:.4f}", f"slowest rank per micro-batch; gap {100 * total.lockstep_gap:.2f}%"),
        ("Bubble", f"{100 * total.bubble_fraction:.1f}%", "of the simulated pipeline idles"),
        ("Fill", f"{100 * total.fill_fraction:.1f}%", f"of the budget; {100 * total.padding_fraction:.1f}% padding"),
        ("Micro-batches", str(total.micro_batches), f"per rank; at least {total.micro_batches_bound} needed"),
        ("Left over", str(dropped), f"dropped; {alone} above the budget, {total.fillers} fillers"),
    ]


def _pipeline_section(schedule: Schedule, number: int) -> str:
    """Return the timeline of the rank whose pipeline takes longest."""
    layout = schedule.layout
    costs = schedule.steps[number].costs
    times = [pipeline_makespan(row, pp=layout.pp, vpp=layout.vpp, group=layout.group) for row in costs]
    rank = times.index(max(times))
    timeline = simulate(costs[rank], layout=layout)
    kind = "Interleaved 1F1B" if layout.vpp > 1 else "1F1B"
    note = f"{kind}, simulated with backward twice forward: {100 * timeline.bubble_fraction:.1f}% idle. Right: busy."
    return section(f"Pipeline of rank {rank}, the slowest", note, timeline_chart(timeline))


def _lengths_section(schedule: Schedule, number: int) -> str:
    """Return the histogram of a step's samples."""
    lengths = [
        schedule.total_lengths[p] for rank in schedule.steps[number].micro_batches for members in rank for p in members
    ]
    batching, cp = schedule.batching, schedule.layout.cp
    budget = batching.max_tokens_per_gpu * cp if isinstance(batching, TokenBudget) else None
    note = f"{len(lengths):,} samples, {sum(lengths):,} tokens, longest {max(lengths):,}."
    return section("Lengths", note, lengths_chart(lengths, budget))


def _reasons(schedule: Schedule, number: int) -> str:
    """Return what raised the number of micro-batches, in order."""
    step = schedule.steps[number]
    items = [
        element("li", [f"<b>{reason.micro_batches}</b> {escape(reason.rule)}: {escape(reason.why)}"])
        for reason in step.reasons
    ]
    heading = element("h2", [f"Why {step.num_micro_batches} micro-batches per rank"])
    return element("section", [heading, element("ol", items)])


def _row(name: str, step: StepReport) -> list[str]:
    """Return one line of the table of steps."""
    return [
        name,
        f"{step.rollouts:,}",
        f"{step.samples:,}",
        str(step.micro_batches),
        f"{step.imbalance:.4f}",
        f"{step.lockstep:.4f}",
        *(f"{100 * value:.1f}%" for value in (step.bubble_fraction, step.fill_fraction, step.padding_fraction)),
        str(step.fillers),
    ]
