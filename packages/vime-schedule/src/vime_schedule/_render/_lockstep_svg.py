"""Draw what lock-step costs: per micro-batch index, the mean over the ranks and what the slowest adds."""

from __future__ import annotations

from itertools import pairwise

from vime_schedule._render._svg import Chart, label, legend, line, rect
from vime_schedule._step import StepSchedule

WIDTH, LEFT, TOP, PLOT, BOTTOM = 460.0, 44.0, 10.0, 150.0, 52.0
MOST_BARS = 200


def lockstep_chart(step: StepSchedule) -> Chart:
    """Return the chart of a step; beyond 200 micro-batches neighbours share a bar."""
    dearest = step.row_costs
    mean = [sum(column) / len(step.costs) for column in zip(*step.costs, strict=True)]
    bars = min(MOST_BARS, len(mean))
    edges = [index * len(mean) // bars for index in range(bars + 1)]
    top = max(dearest) or 1.0
    wide = (WIDTH - LEFT) / bars
    parts = []
    for fraction in (0.0, 0.5, 1.0):
        y = TOP + PLOT * (1 - fraction)
        parts.append(line(LEFT, y, WIDTH, y, "rule"))
        parts.append(label(LEFT - 6, y + 4, f"{100 * fraction:.0f}%", "muted", "end"))
    for bar, (first, last) in enumerate(pairwise(edges)):
        x, body = LEFT + bar * wide, max(0.5, wide * 0.86)
        slow, fair = (sum(values[first:last]) / (last - first) / top for values in (dearest, mean))
        name = f"micro-batch {first}" if last == first + 1 else f"micro-batches {first} to {last - 1}"
        tip = f"{name}: the slowest rank needs {100 * (slow / fair - 1 if fair else 0):.2f}% more than the mean"
        parts.append(rect(x, TOP + PLOT * (1 - slow), body, PLOT * (slow - fair), "wait", tip))
        parts.append(rect(x, TOP + PLOT * (1 - fair), body, PLOT * fair, "even", tip))
    parts.append(label(LEFT, TOP + PLOT + 18, "0", "muted"))
    parts.append(label(WIDTH, TOP + PLOT + 18, f"micro-batch {len(mean) - 1}", "muted", "end"))
    parts.append(legend(LEFT, TOP + PLOT + 42, [("even", "mean rank"), ("wait", "slowest rank beyond it")]))
    return Chart(width=WIDTH, height=TOP + PLOT + BOTTOM, body="".join(parts), label="Cost by micro-batch index")
