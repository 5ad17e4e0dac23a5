"""Draw how long the samples are: a histogram over a logarithmic axis, with the token budget marked."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vime_schedule._render._svg import Chart, label, line, rect

WIDTH, LEFT, TOP, PLOT, BOTTOM = 460.0, 44.0, 22.0, 138.0, 52.0
BINS = 40


def lengths_chart(lengths: Sequence[int], budget: int | None) -> Chart:
    """Return the histogram; `budget` is the longest sample that fits, in tokens."""
    low = math.log(min(lengths))
    high = max(math.log(max(lengths)), low + 1e-9, math.log(budget) if budget else low)
    counts = [0] * BINS
    for length in lengths:
        counts[min(BINS - 1, int((math.log(length) - low) / (high - low) * BINS))] += 1
    wide, most = (WIDTH - LEFT) / BINS, max(counts)
    parts = [line(LEFT, TOP + PLOT, WIDTH, TOP + PLOT, "rule"), line(LEFT, TOP, WIDTH, TOP, "rule")]
    parts += [label(LEFT - 6, TOP + 4, str(most), "muted", "end"), label(LEFT - 6, TOP + PLOT + 4, "0", "muted", "end")]
    for index, count in enumerate(counts):
        first, last = (math.exp(low + (high - low) * (index + edge) / BINS) for edge in (0, 1))
        height = PLOT * count / most
        tip = f"{count} samples of {first:.0f} to {last:.0f} tokens"
        parts.append(rect(LEFT + index * wide, TOP + PLOT - height, wide * 0.86, height, "even", tip))
    for tick in _ticks(math.exp(low), math.exp(high)):
        x = LEFT + (math.log(tick) - low) / (high - low) * (WIDTH - LEFT)
        parts.append(label(x, TOP + PLOT + 18, short(tick), "muted", "middle"))
    if budget:
        x = LEFT + (math.log(budget) - low) / (high - low) * (WIDTH - LEFT)
        parts += [line(x, TOP - 8, x, TOP + PLOT, "mean"), label(x - 5, TOP - 8, "budget", "muted", "end")]
    parts.append(label((LEFT + WIDTH) / 2, TOP + PLOT + 40, "tokens per sample", "muted", "middle"))
    return Chart(width=WIDTH, height=TOP + PLOT + BOTTOM, body="".join(parts), label="Samples by length")


def _ticks(low: float, high: float) -> list[int]:
    """Return powers of two inside the range, at most eight."""
    powers = [1 << k for k in range(54) if low <= 1 << k <= high]
    return powers[:: -(-len(powers) // 8) or 1]


def short(tokens: int) -> str:
    """Write a power of two as people do.

    >>> short(512), short(16384), short(1 << 21)
    ('512', '16k', '2M')
    """
    for unit, name in ((1 << 50, "P"), (1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "k")):
        if tokens >= unit:
            return f"{tokens // unit}{name}"
    return str(tokens)
