"""Work grows like n log n. Work is counted in calls, which no other process can slow down."""

from __future__ import annotations

import random
import sys
from math import log

import pytest

from vime_schedule import ParallelLayout, PolynomialCost, TokenBudget, build_dp_schedule

FAMILIES = {
    "heavy tail": lambda draw: min(30000, int(draw.lognormvariate(7.0, 1.6)) + 1),
    "truncated": lambda draw: 32768 if draw.random() < 0.15 else int(draw.lognormvariate(7.6, 1.0)) % 32768 + 1,
    "two kinds": lambda draw: draw.randint(200, 2000) if draw.random() < 0.85 else draw.randint(20000, 32768),
    "uniform": lambda draw: draw.randint(200, 32768),
    "equal": lambda draw: 4000,
}


def calls(count: int, family: str, objective: str) -> int:
    """Calls that planning `count` samples takes, with as many samples per rank at every size."""
    draw = random.Random(count)
    lengths = [FAMILIES[family](draw) for _ in range(count)]
    made = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        build_dp_schedule(
            lengths,
            layout=ParallelLayout(dp=count // 128),
            batching=TokenBudget(max_tokens_per_gpu=32768),
            global_batch_size=count,
            cost=PolynomialCost(0.0, 24576.0, 1.0),
            objective=objective,
        )
    finally:
        sys.setprofile(None)
    return made


@pytest.mark.parametrize("objective", ["step", "lockstep"])
@pytest.mark.parametrize("family", FAMILIES)
def test_work_grows_like_n_log_n(family: str, objective: str) -> None:
    small, large = 2048, 16384
    growth = calls(large, family, objective) / calls(small, family, objective)
    assert growth <= 1.3 * (large * log(large)) / (small * log(small))
