"""Draw a pipeline timeline: a row per stage, a box per forward and backward, shaded by model chunk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from vime_schedule._pipeline import PipelineTimeline, TimelineSlot
from vime_schedule._render._svg import Chart, element, label, legend, line, number, rect
from vime_schedule._render._theme import standalone

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 960.0, 64.0, 62.0, 8.0, 52.0
MOST_BOXES = 6000
SHADES = 4


def timeline_chart(timeline: PipelineTimeline) -> Chart:
    """Return the Gantt chart; above 6000 operations boxes lose their tooltips and numbers."""
    stages = len(timeline.stages)
    height, gap = (26.0, 6.0) if stages <= 16 else (12.0, 3.0)
    scale = (WIDTH - LEFT - RIGHT) / (timeline.makespan or 1.0)
    bottom = TOP + stages * (height + gap) - gap
    parts = []
    for quarter in range(5):
        x = LEFT + (WIDTH - LEFT - RIGHT) * quarter / 4
        parts.append(line(x, TOP - 4, x, bottom + 4, "rule"))
        parts.append(label(x, bottom + 18, f"{25 * quarter}%", "muted", "middle"))
    many = sum(map(len, timeline.stages)) > MOST_BOXES
    for stage, slots in enumerate(timeline.stages):
        y = TOP + stage * (height + gap)
        middle = y + height / 2 + 4
        parts.append(label(LEFT - 8, middle, f"stage {stage}", "muted", "end"))
        parts.append(label(WIDTH - RIGHT + 8, middle, f"{100 * timeline.busy_fraction(stage):.1f}%", "end"))
        parts.append(rect(LEFT, y, WIDTH - LEFT - RIGHT, height, "idle"))
        parts += _paths(slots, y, height, scale) if many else _boxes(slots, stage, y, height, scale)
    keys = [("f0", "forward"), ("b0", "backward"), ("idle", "idle")]
    if timeline.layout.vpp > 1:
        keys.insert(2, ("f1", "other shades: later model chunks"))
    parts.append(legend(LEFT, bottom + 42, keys))
    text = f"Pipeline of {stages} stages, bubble {100 * timeline.bubble_fraction:.1f}%"
    return Chart(width=WIDTH, height=bottom + BOTTOM, body="".join(parts), label=text)


def timeline_svg(timeline: PipelineTimeline) -> str:
    """Return the chart as an SVG file."""
    return standalone(timeline_chart(timeline)) + "\n"


def _boxes(slots: tuple[TimelineSlot, ...], stage: int, y: float, height: float, scale: float) -> Iterator[str]:
    """Yield a box per operation, with its micro-batch number where it fits."""
    for slot in slots:
        operation, x, width = slot.operation, LEFT + slot.start * scale, (slot.end - slot.start) * scale
        kind = "backward" if operation.backward else "forward"
        tip = f"stage {stage}, {kind} of micro-batch {operation.micro_batch}, chunk {operation.chunk}"
        yield rect(x, y, max(0.4, width - 0.8), height, _shade(slot), f"{tip}: {slot.start:.6g} to {slot.end:.6g}")
        name = str(operation.micro_batch)
        if width > 6 * len(name) + 3 and height > 14:
            yield label(x + width / 2, y + height / 2 + 3.5, name, "inside", "middle")


def _paths(slots: tuple[TimelineSlot, ...], y: float, height: float, scale: float) -> Iterator[str]:
    """Yield one path per shade: a tenth of the size of boxes."""
    drawn: dict[str, list[str]] = defaultdict(list)
    for slot in slots:
        x, width = LEFT + slot.start * scale, (slot.end - slot.start) * scale
        drawn[_shade(slot)].append(f"M{number(x)} {number(y)}h{number(width)}v{number(height)}H{number(x)}z")
    for style, pieces in sorted(drawn.items()):
        yield element("path", d="".join(pieces), class_=style)


def _shade(slot: TimelineSlot) -> str:
    """Name the colour of an operation."""
    return f"{'b' if slot.operation.backward else 'f'}{slot.operation.chunk % SHADES}"
