"""Draw a pipeline timeline as text: a row per stage, time from left to right.

    stage 0 │0░1░····▓0▓░▓1▓│

`░` is forward, `▓` backward, `·` idle; a block starts with the number of its micro-batch where it is wide enough.
"""

from __future__ import annotations

from vime_schedule._pipeline import PipelineTimeline, TimelineSlot
from vime_schedule._render._text import Line, Span, Style, merge

FORWARD, BACKWARD, IDLE = "░", "▓", "·"


def timeline_lines(timeline: PipelineTimeline, *, width: int) -> list[Line]:
    """Return the Gantt chart in at most `width` columns."""
    label = len(f"stage {len(timeline.stages) - 1} ")
    room = max(8, width - label - 2 - len(" 100.0%"))
    lines: list[Line] = []
    for stage, slots in enumerate(timeline.stages):
        busy = f"{100 * timeline.busy_fraction(stage):6.1f}%"
        cells = _row(slots, room, timeline.makespan or 1.0)
        lines.append([(f"stage {stage} ".rjust(label), "dim"), ("│", "dim"), *cells, ("│", "dim"), (busy, "")])
    return lines


def _row(slots: tuple[TimelineSlot, ...], room: int, makespan: float) -> Line:
    """Return one stage: every cell shows what runs at its middle."""
    cells: list[Span] = [(IDLE, "dim")] * room
    for slot in slots:
        first = _cell(slot.start, room, makespan)
        last = _cell(slot.end, room, makespan)
        style: Style = "backward" if slot.operation.backward else "forward"
        name = str(slot.operation.micro_batch)
        text = (name if last - first > len(name) else "").ljust(
            last - first, BACKWARD if slot.operation.backward else FORWARD
        )
        cells[first:last] = [(character, style) for character in text]
    return merge(cells)


def _cell(time: float, room: int, makespan: float) -> int:
    """Return the first cell whose middle is not before `time`."""
    return min(room, int(room * time / makespan + 0.5))
