"""Losses over real gloo processes: the collectives behind log-probs, GSPO, MIS, GAE and whitening are right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize("world_size", [2, 3])
def test_losses_over_processes(run_ranks: Callable[..., list[Any]], world_size: int) -> None:
    for rank in run_ranks("_gloo_losses.py", world_size):
        assert rank["tp"]["entropy"] < 1e-12
        assert rank["tp"]["gradient"] < 1e-12
        assert rank["whiten"] < 1e-9
        for layout in ("zigzag", "contiguous"):
            assert rank[layout]["gspo"] < 1e-12, "the ratio's gradient sums over ranks, one backward per micro-batch"
            assert rank[layout]["mis"] < 1e-12
            assert rank[layout]["gae"] < 1e-12
