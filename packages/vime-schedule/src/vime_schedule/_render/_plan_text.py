"""Draw one step of a plan as text: a bar per rank, a block per micro-batch, as long as its cost.

    rank 0 │████▒▒▒████▒▒▒▒│
    rank 1 │███▒▒▒▒████▒▒▒ │

Neighbouring micro-batches alternate their shade, so boundaries show without colour; the right edge is the slowest rank.
"""

from __future__ import annotations

from collections.abc import Sequence

from vime_schedule._render._pick import pick_ranks
from vime_schedule._render._text import Line, Span, Style, merge
from vime_schedule._step import StepSchedule

SHADES = ("█", "▒")
FILLER = "·"


def plan_lines(step: StepSchedule, *, width: int, limit: int = 16, oversize: Sequence[int] = ()) -> list[Line]:
    """Return the chart of a step in at most `width` columns and `limit` ranks."""
    costs = step.rank_costs
    ranks = pick_ranks(costs, limit)
    label = len(f"rank {ranks[-1]} ")
    room = max(8, width - label - 2 - len(" 100.0%"))
    slowest = max(costs) or 1.0
    alone = set(oversize)
    lines: list[Line] = []
    for rank in ranks:
        cells = _bar(step, rank, room, slowest, alone)
        share = f"{100 * costs[rank] / slowest:6.1f}%"
        lines.append([(f"rank {rank} ".rjust(label), "dim"), ("│", "dim"), *cells, ("│", "dim"), (share, "")])
    if len(ranks) < len(costs):
        lines.append([(f"{len(ranks)} of {len(costs)} ranks: the slowest, the fastest, and between", "dim")])
    return lines


def _bar(step: StepSchedule, rank: int, room: int, slowest: float, alone: set[int]) -> Line:
    """Return the blocks of one rank, padded to `room` cells."""
    cells: list[Span] = []
    passed = 0.0
    for m, (micro_batch, cost) in enumerate(zip(step.micro_batches[rank], step.costs[rank], strict=True)):
        passed += cost
        end = round(room * passed / slowest)
        if not micro_batch:
            cells.append((FILLER, "filler"))
            continue
        style: Style = "oversize" if alone.intersection(micro_batch) else ("odd" if m % 2 else "even")
        cells.extend([(SHADES[m % 2], style)] * (end - len(cells)))
    cells = cells[:room]
    return merge(cells + [(" ", "")] * (room - len(cells)))
