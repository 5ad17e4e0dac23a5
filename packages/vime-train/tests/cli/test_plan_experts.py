"""`vime-train plan` of a model with experts: what a token computes, what a rank holds, and what the plan is good at."""

from __future__ import annotations

from pathlib import Path

import pytest

from vime_train.cli import main

DENSE = 131_520
"""Parameters of the demo's model with two layers."""
EXPERTS = DENSE + 2 * (4 * 3 * 64 * 96 + 4 * 64 - 3 * 64 * 192)
"""Four experts of 96 columns and a router, in place of one network of 192, in both layers."""


def plan(capsys: pytest.CaptureFixture[str], *overrides: str) -> str:
    options = [word for override in ("model.num_hidden_layers=2", *overrides) for word in ("--set", override)]
    given = ["--lengths", "lengths.txt", "--tflops", "0.001"]
    assert main(["plan", "arithmetic.toml", "experts.toml", *options, *given]) == 0
    return capsys.readouterr().out


@pytest.fixture
def lengths(elsewhere: Path) -> None:
    (elsewhere / "lengths.txt").write_text("100\n100\n")


@pytest.mark.usefixtures("lengths")
def test_a_token_computes_its_own_experts_and_the_router(capsys: pytest.CaptureFixture[str]) -> None:
    """Two experts of 96 columns compute as much as one network of 192; a router adds 2 x 64 x 4 operations."""
    text = plan(capsys)
    flops = 3 * 100 * (253_952 + 2 * 2 * 64 * 4 + 512 * 100)
    assert f"training     {flops / 1e12:.3g} TFLOP" in text
    assert f"time         {flops / 1e9:.3g} s" in text


@pytest.mark.usefixtures("lengths")
def test_experts_are_spread_and_the_rest_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    spread, whole = plan(capsys), plan(capsys, "layout.ep=1")
    assert "dp 2 x cp 1 x tp 1 x pp 1 (vpp 1, ep 2) = 2 trainer ranks" in spread
    assert "(vpp 1) = 2 trainer ranks" in whole
    for text, held in ((spread, EXPERTS - 2 * 2 * 3 * 64 * 96), (whole, EXPERTS)):
        assert f"{EXPERTS:,} parameters in all" in text
        line, _of_the_engine = [line for line in text.splitlines() if line.startswith("  weights")]
        assert f" {held * 4 / 2**20:.2f} MiB" in line
