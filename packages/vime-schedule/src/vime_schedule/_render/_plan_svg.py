"""Draw one step of a plan: a row per rank, a box per micro-batch.

A box is as wide as the micro-batch costs and filled as high as it uses the budget, with padding on top, so one look
shows both what the ranks compute and what the GPUs hold. Behind a rank's last box, what it waits for the slowest rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import fsum

from vime_schedule._batching import TokenBudget
from vime_schedule._render._pick import pick_ranks
from vime_schedule._render._svg import Chart, label, legend, line, rect
from vime_schedule._schedule import Schedule
from vime_schedule._step import StepSchedule

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
    drawing = _Drawing(
        schedule=schedule, step=step, size=size, slowest=max(costs) or 1.0, alone=frozenset(schedule.oversize)
    )
    parts = [part for row, rank in enumerate(ranks) for part in drawing.row(row, rank)]
    bottom = TOP + len(ranks) * (size.height + size.gap) - size.gap
    mean = LEFT + fsum(costs) / len(costs) * drawing.scale
    parts += [line(mean, TOP - 7, mean, bottom + 4, "mean"), label(mean, TOP - 11, "mean", "muted", "middle")]
    parts.append(legend(LEFT, bottom + 24, _legend(schedule, step, size)))
    if len(ranks) < len(costs):
        parts.append(label(WIDTH - RIGHT, bottom + 24, f"{len(ranks)} of {len(costs)} ranks", "muted", "end"))
    text = f"Step {number}: micro-batches of {len(ranks)} ranks; width is cost, height is the share of the budget"
    return Chart(width=WIDTH, height=bottom + BOTTOM, body="".join(parts), label=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawing:
    """One step, and the size in which it is drawn."""

    schedule: Schedule
    step: StepSchedule
    size: RowSize
    slowest: float
    alone: frozenset[int]

    @property
    def scale(self) -> float:
        """Width of one unit of cost."""
        return (WIDTH - LEFT - RIGHT) / self.slowest

    def row(self, row: int, rank: int) -> Iterator[str]:
        """Yield a rank: its labels, its boxes, and what it waits."""
        y, height = TOP + row * (self.size.height + self.size.gap), self.size.height
        cost = self.step.rank_costs[rank]
        share = cost / self.slowest
        if row % self.size.every == 0:
            yield label(LEFT - 8, y + height / 2 + 4, f"rank {rank}", "muted", "end")
            yield label(WIDTH - RIGHT + 8, y + height / 2 + 4, f"{100 * share:.1f}%", "end")
        x = LEFT
        for m, (members, part) in enumerate(zip(self.step.micro_batches[rank], self.step.costs[rank], strict=True)):
            place = f"rank {rank}, micro-batch {m}"
            if members:
                yield self.box(members, x, y, part, place, "odd" if m % 2 else "even")
            else:
                yield rect(x - 1, y, 2.5, height, "mark", f"{place}: filler, no sample")
            x += part * self.scale
        tip = f"rank {rank} waits {100 * (1 - share):.2f}% of the step"
        yield rect(LEFT + cost * self.scale, y, (self.slowest - cost) * self.scale, height, "wait", tip)

    def box(self, members: Sequence[int], x: float, y: float, cost: float, place: str, shade: str) -> str:
        """Return a micro-batch; a row that is high enough shows how far it fills the budget."""
        batching, cp, height = self.schedule.batching, self.schedule.layout.cp, self.size.height
        lengths = [self.schedule.total_lengths[p] for p in members]
        held = batching.gpu_tokens(lengths, cp)
        room = batching.max_tokens_per_gpu if isinstance(batching, TokenBudget) else max(held, 1)
        tip = f"{place}: {len(members)} sample(s), {held} of {room} tokens per GPU, cost {cost:.6g}"
        width = max(0.4, cost * self.scale - 1.0)
        kind = "oversize" if not self.alone.isdisjoint(members) else shade
        if height < LEGIBLE:
            return rect(x, y, width, height, kind, tip)
        used = min(1.0, sum(lengths) / cp / room)
        padded = min(1.0, held / room) - used
        return "".join(
            (
                rect(x, y, width, height, "room", tip),
                rect(x, y + height * (1 - used), width, height * used, kind, tip),
                rect(x, y + height * (1 - used - padded), width, height * padded, "padding", tip),
            )
        )


def _legend(schedule: Schedule, step: StepSchedule, size: RowSize) -> list[tuple[str, str]]:
    """Return the keys that this chart needs."""
    shows_fill = size.height >= LEGIBLE and isinstance(schedule.batching, TokenBudget)
    entries = [("even", "tokens" if shows_fill else "micro-batch")]
    if shows_fill:
        entries += [("padding", "padding"), ("room", "unused budget")]
    alone = set(schedule.oversize)
    if not all(alone.isdisjoint(members) for rank in step.micro_batches for members in rank):
        entries.append(("oversize", "above the budget, alone"))
    if step.num_fillers:
        entries.append(("mark", "filler"))
    return [*entries, ("wait", "waits for the slowest rank")]
