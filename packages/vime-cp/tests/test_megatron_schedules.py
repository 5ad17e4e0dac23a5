"""The adapter inside Megatron-core's own schedules, DDP and ``finalize_model_grads``: exact in every layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

pytest.importorskip("megatron.core", reason="the adapter is tested against the installed megatron-core")


@pytest.fixture(scope="module")
def ranks(run_ranks: Callable[..., list[Any]]) -> list[Any]:
    """17 layouts and modes over four processes; the model is fp64, so that nothing hides in rounding."""
    return run_ranks("_megatron_schedules.py", 4)


@pytest.mark.slow
def test_gradients_after_megatrons_step_are_those_of_the_objective(ranks: list[Any]) -> None:
    assert len(ranks[0]) == 17
    for name in ranks[0]:
        for result in (rank[name] for rank in ranks):
            assert result["error"] < 1e-12, name
            assert result["logged"] == pytest.approx(result["objective"], abs=1e-12), f"{name}: the log was scaled"
            assert ("masked" in name) == (result["largest"] == 0), f"{name}: the comparison must not be empty"


@pytest.mark.slow
def test_C8_verl_6609_auxiliary_losses_keep_their_weight_per_token_under_context_parallelism(ranks: list[Any]) -> None:
    """Reported: gradients explode with per-token loss, MoE and CP. A token's share of an auxiliary loss must be 1/N."""
    counted = [name for name in ranks[0] if "per token, tokens counted" in name]
    assert len(counted) == 3
    for name in counted:
        assert max(rank[name]["auxiliary"] for rank in ranks) == pytest.approx(1.0, rel=1e-6), name
