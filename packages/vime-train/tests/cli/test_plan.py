"""`vime-train plan`: the arithmetic of a run before it runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from vime_train.cli import main
from vime_train.config import DataSection, ModelSection, RunConfig, load_config
from vime_train.data import load_source, make_model


def test_plan_shows_the_arithmetic(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "arithmetic.toml", "--set", "layout.cp=2", "--set", "model.num_hidden_layers=2"]) == 0
    text = capsys.readouterr().out
    assert "32 prompts x 16 = 512 per iteration, up to 2 samples each" in text
    assert "4 optimizer steps per iteration, of 128 rollouts" in text
    assert "dp 2 x cp 2 x tp 1 x pp 1 (vpp 1) = 4 trainer ranks" in text
    assert "samples     512" in text
    assert "parameters  131,520" in text


def test_plan_predicts_memory_and_arithmetic(capsys: pytest.CaptureFixture[str], elsewhere: Path) -> None:
    """Counted by hand: 131,520 parameters of 4 bytes, weights + gradients + two moments cut over two ranks."""
    (elsewhere / "lengths.txt").write_text("100\n")
    one = [
        "plan",
        "arithmetic.toml",
        "--set",
        "model.num_hidden_layers=2",
        "--lengths",
        "lengths.txt",
        "--tflops",
        "0.001",
    ]
    assert main(one) == 0
    text = capsys.readouterr().out
    assert f"memory      {131_520 * 4 * 3 / 2**20:.2f} MiB per rank" in text
    flops = 3 * 100 * (253_952 + 512 * 100)
    assert f"arithmetic  {flops / 1e12:.3g} TFLOP on the busiest rank per iteration, {flops / 1e9:.3g} s at" in text


def test_plan_counts_the_weights_of_a_model_directory(capsys: pytest.CaptureFixture[str], elsewhere: Path) -> None:
    source = load_source(DataSection())
    make_model(str(elsewhere / "model"), ModelSection(num_hidden_layers=4), source.tokenizer, seed=0)
    assert main(["plan", "arithmetic.toml", "--set", "model.path=model"]) == 0
    assert "parameters  254,784" in capsys.readouterr().out


def test_plan_takes_lengths_from_a_file(capsys: pytest.CaptureFixture[str], elsewhere: Path) -> None:
    (elsewhere / "lengths.txt").write_text("100\n200\n\n300\n")
    assert main(["plan", "arithmetic.toml", "--lengths", "lengths.txt", "--html", "plan.html"]) == 0
    text = capsys.readouterr().out
    assert "plan of one iteration, lengths of lengths.txt" in text
    assert "samples     3, 600 tokens" in text
    assert (elsewhere / "plan.html").read_text().lower().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("content", "message"), [("12\nx\n", "lengths.txt:2: 'x'"), ("0\n", ":1: '0'"), ("", "no number")]
)
def test_plan_refuses_lengths_that_are_none(
    refuse: Callable[..., str], elsewhere: Path, content: str, message: str
) -> None:
    (elsewhere / "lengths.txt").write_text(content)
    assert message in refuse("plan", "arithmetic.toml", "--lengths", "lengths.txt")


def test_plan_can_print_the_resolved_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "arithmetic.toml", "--set", "layout.dp=4", "--show-config"]) == 0
    config = RunConfig.model_validate_json(capsys.readouterr().out)
    assert config == load_config(["arithmetic.toml"], ["layout.dp=4"])
