"""A trainer that was closed leaves nothing in its process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize("family", ["qwen3", "qwen3_moe"])
def test_no_thread_of_a_closed_trainer_is_left(
    start: Callable[..., Any],
    run_config: Callable[..., Any],
    plan_batches: Callable[..., Any],
    tiny_model: Callable[..., Any],
    family: str,
) -> None:
    """Each of its process groups has three, and one of them wakes up 100 times a second."""
    config = run_config({"dp": 2})
    left = []
    for _ in range(2):
        job = start(config, tiny_model(family))
        job.train(plan_batches(config))
        assert min(job.call("threads", target="rank")) > 10
        job.close()
        left.append(job.call("threads", target="rank"))
    assert left[0] == left[1]
    assert max(left[1]) < 10
