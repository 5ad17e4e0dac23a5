"""Draw one step of a plan: a row per rank, a box per micro-batch.

A box is as wide as the micro-batch costs and filled as high as it uses the budget, with padding on top, so one look
shows both what the ranks compute and what the GPUs hold. Behind a rank's last box, what it waits for the slowest rank.
"""

from __future__ import annotations

from dataclasses import dataclass

from vime_schedule._batching import TokenBudget
from vime_schedule._render._pick import pick_ranks
from vime_schedule._render._svg import Chart, label, legend, line, rect
from vime_schedule._schedule import Schedule

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 960.0, 64.0, 62.0, 24.0, 30.0
MOST_BOXES = 8000
MOST_ROWS = 256
LEGIBLE = 10.0  # below this height a row shows no fill


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSize:
    """Height of a row, the space below it, and how many rows share a label."""

    height: float
    gap: float
    every: int

    @classmethod
    def of(cls, rows: int) -> RowSize:
        """Return the largest size with which `rows` fit a page."""
        for most, height, gap, every in ((16, 24.0, 7.0, 1), (40, 14.0, 4.0, 1), (96, 7.0, 2.0, 4)):
            if rows <= most:
                return cls(height=height, gap=gap, every=every)
        return cls(height=3.0, gap=0.0, every=16)


def plan_chart(schedule: Schedule, number: int) -> Chart:
    """Return the chart of step `number`; of many ranks the dearest, the cheapest and some between."""
    step = schedule.steps[number]
    costs = step.rank_costs
    ranks = pick_ranks(costs, max(8, min(MOST_ROWS, MOST_BOXES // step.num_micro_batches)))
    size = RowSize.of(len(ranks))
    slowest = max(costs) or 1.0
    scale = (WIDTH - LEFT - RIGHT) / slowest
    parts = []
    for row, rank in enumerate(ranks):
        y = TOP + row * (size.height + size.gap)
        if row % size.every == 0:
            middle = y + size.height / 2 + 4
            parts.append(label(LEFT - 8, middle, f"rank {rank}", "muted", "end"))
            parts.append(label(WIDTH - RIGHT + 8, middle, f"{100 * costs[rank] / slowest:.1f}%", "end"))
        parts += _boxes(schedule, number, rank, y, size.height, scale)
        parts.append(
            rect(
                LEFT + costs[rank] * scale,
                y,
                (slowest - costs[rank]) * scale,
                size.height,
                "wait",
                f"rank {rank} waits {100 * (1 - costs[rank] / slowest):.2f}% of the step",
            )
        )
    bottom = TOP + len(ranks) * (size.height + size.gap) - size.gap
    mean = LEFT + sum(costs) / len(costs) * scale
    parts.append(line(mean, TOP - 7, mean, bottom + 4, "mean"))
    parts.append(label(mean, TOP - 11, "mean", "muted", "middle"))
    note = "" if len(ranks) == len(costs) else f"{len(ranks)} of {len(costs)} ranks"
    parts.append(label(WIDTH - RIGHT, bottom + 24, note, "muted", "end") if note else "")
    parts.append(legend(LEFT, bottom + 24, _legend(schedule, number, size)))
    text = f"Step {number}: micro-batches of {len(ranks)} ranks; width is cost, height is the share of the budget"
    return Chart(width=WIDTH, height=bottom + BOTTOM, body="".join(parts), label=text)


def _boxes(schedule: Schedule, number: int, rank: int, y: float, height: float, scale: float) -> list[str]:
    """Return the boxes of one rank."""
    step, batching, cp = schedule.steps[number], schedule.batching, schedule.layout.cp
    lengths, alone = schedule.total_lengths, set(schedule.oversize)
    parts, x = [], LEFT
    for m, (members, cost) in enumerate(zip(step.micro_batches[rank], step.costs[rank], strict=True)):
        width = cost * scale
        if not members:
            parts.append(rect(x - 1, y, 2.5, height, "mark", f"rank {rank}, micro-batch {m}: filler, no sample"))
            continue
        tokens = sum(lengths[p] for p in members)
        held = batching.gpu_tokens([lengths[p] for p in members], cp)
        used, padded = tokens / cp, held - tokens / cp
        room = float(batching.max_tokens_per_gpu) if isinstance(batching, TokenBudget) else max(held, 1)
        load = f"{len(members)} sample(s), {held} of {room:g} tokens per GPU, cost {cost:.6g}"
        tip = f"rank {rank}, micro-batch {m}: {load}"
        body = max(0.4, width - 1.0)
        kind = "oversize" if alone.intersection(members) else ("odd" if m % 2 else "even")
        if height < LEGIBLE:
            parts.append(rect(x, y, body, height, kind, tip))
        else:
            share = min(1.0, used / room)
            pad = min(1.0 - share, padded / room)
            parts.append(rect(x, y, body, height, "room", tip))
            parts.append(rect(x, y + height * (1 - share), body, height * share, kind, tip))
            parts.append(rect(x, y + height * (1 - share - pad), body, height * pad, "padding", tip))
        x += width
    return parts


def _legend(schedule: Schedule, number: int, size: RowSize) -> list[tuple[str, str]]:
    """Return the keys that this chart needs."""
    step = schedule.steps[number]
    shows_fill = size.height >= LEGIBLE and isinstance(schedule.batching, TokenBudget)
    entries = [("even", "tokens" if shows_fill else "micro-batch")]
    if shows_fill:
        entries += [("padding", "padding"), ("room", "unused budget")]
    if any(alone in members for alone in schedule.oversize for rank in step.micro_batches for members in rank):
        entries.append(("oversize", "above the budget, alone"))
    if step.num_fillers:
        entries.append(("mark", "filler"))
    return [*entries, ("wait", "waits for the slowest rank")]
