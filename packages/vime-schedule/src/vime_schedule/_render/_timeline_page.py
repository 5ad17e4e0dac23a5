"""The page of a pipeline timeline."""

from __future__ import annotations

from vime_schedule._pipeline import PipelineTimeline
from vime_schedule._render._page import page, section, tiles
from vime_schedule._render._timeline_svg import timeline_chart


def timeline_page(timeline: PipelineTimeline, title: str) -> str:
    """Return the page."""
    stages = range(len(timeline.stages))
    kind = "Interleaved 1F1B" if timeline.layout.vpp > 1 else "1F1B"
    content = [
        tiles(
            [
                ("Makespan", f"{timeline.makespan:.6g}", "in cost units, first forward to last backward"),
                ("Bubble", f"{100 * timeline.bubble_fraction:.1f}%", "of the time an average stage idles"),
                ("In flight", str(max(map(timeline.peak_in_flight, stages))), "activations held at once by a stage"),
            ]
        ),
        section(
            "Stages", "Numbers are micro-batches. Right: share of the time a stage computes.", timeline_chart(timeline)
        ),
    ]
    return page(f"Pipeline of {title}", f"{kind} on {len(stages)} stages", content, "vime-schedule")
