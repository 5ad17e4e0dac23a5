"""The same gathers over real gloo processes: exact gradients, one collective per micro-batch, nobody left waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize("world_size", [2, 3])
def test_gathers_over_processes(run_ranks: Callable[..., list[Any]], world_size: int) -> None:
    for rank in run_ranks("_gloo_gathers.py", world_size):
        for result in rank.values():
            assert result["partial"] < 1e-12, (
                "slime: a second micro-batch's backward went through the first one's graph"
            )
            assert result["sums"] < 1e-12
            assert result["replicated"] < 1e-12
            assert result["replicated_sums"] < 1e-10
            assert result["tokens"] < 1e-10
            assert result["nothing"] < 1e-12, "slime #2123: ranks disagreed whether the collective had a backward"
            assert result["graph"] is False
            assert result["collectives"] == {"forward": 1, "backward": 1}
            assert result["empty"] < 1e-12, "slime: autograd.grad pruned the rank that scored nothing, the others hung"
            assert result["filler"] == [0]
            assert result["masks"] is True
            assert f"size={world_size + 1} but the group has rank=" in result["wrong_group"]
