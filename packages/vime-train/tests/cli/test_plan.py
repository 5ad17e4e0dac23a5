"""`vime-train plan`: the arithmetic of a run before it runs."""

from __future__ import annotations

import json
import subprocess
import sys
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
    assert "131,520 parameters in all" in text


def items(text: str) -> dict[str, str]:
    """What `plan` predicts of a trainer's memory, by item."""
    table = text.partition("memory of the trainer rank")[2].partition("memory of an engine")[0]
    return {line[2:15].strip(): line[15:26].strip() for line in table.splitlines() if line.startswith("  ")}


def test_plan_predicts_memory_and_arithmetic(capsys: pytest.CaptureFixture[str], elsewhere: Path) -> None:
    """Counted by hand: 131,520 parameters of 4 bytes, two moments cut over two ranks, 100 tokens in 2 layers."""
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
    states = f"{131_520 * 4 / 2**20:.2f} MiB"
    per_token = 2 * (7 * 64 + 6 * 128 + 2.5 * 128 + 5 * 192) + 2 * 64
    assert items(text) == {
        "weights": states,
        "gradients": states,
        "Adam": states,
        "activations": f"{100 * per_token * 4 / 2**20:.2f} MiB",
        "logits": f"{2 * 100 * 64 * 4 / 2**20:.2f} MiB",
        "exchange": states,
        "process": "0.50 GiB",
        "together": "0.50 GiB",
    }
    assert "memory of an engine" in text
    assert "engine.kv_cache_gib" in text
    flops = 3 * 100 * (253_952 + 512 * 100)
    assert f"training     {flops / 1e12:.3g} TFLOP: 3 x the forward pass" in text
    assert f"time         {flops / 1e9:.3g} s at the 0.001 TFLOP/s that were given and 0.0% bubble" in text
    assert "without communication, scoring passes and generation" in text


BIG = (
    "model.num_hidden_layers=8",
    "model.hidden_size=1024",
    "model.intermediate_size=4096",
    "model.num_attention_heads=16",
    "model.num_key_value_heads=8",
    "model.head_dim=64",
)


def predicted(capsys: pytest.CaptureFixture[str], *overrides: str) -> dict[str, float]:
    """Bytes by item."""
    arguments = [part for override in (*BIG, *overrides) for part in ("--set", override)]
    assert main(["plan", "arithmetic.toml", *arguments]) == 0
    units = {"MiB": 2**20, "GiB": 2**30}
    found = {name: text.split() for name, text in items(capsys.readouterr().out).items()}
    return {name: float(number) * units[unit] for name, (number, unit) in found.items()}


def test_plan_predicts_what_a_layout_divides(capsys: pytest.CaptureFixture[str]) -> None:
    whole = predicted(capsys, "layout.dp=1")
    assert predicted(capsys, "layout.dp=2")["Adam"] == pytest.approx(whole["Adam"] / 2, rel=0.01)
    assert predicted(capsys, "layout.dp=2")["gradients"] == whole["gradients"]
    halves = predicted(capsys, "layout.dp=1", "layout.tp=2")
    assert halves["weights"] == pytest.approx(whole["weights"] / 2, rel=0.01)
    assert halves["logits"] == pytest.approx(whole["logits"] / 2, rel=0.01)
    assert whole["activations"] / 2 < halves["activations"] < whole["activations"], "the stream is not cut"
    stages = predicted(capsys, "layout.dp=1", "layout.pp=2", "batching.max_tokens_per_gpu=512")
    assert stages["weights"] == pytest.approx(whole["weights"] / 2, rel=0.01)


def test_plan_counts_the_models_beside_the_policy(capsys: pytest.CaptureFixture[str]) -> None:
    alone = predicted(capsys)
    beside = predicted(
        capsys, "algorithm.kl.coefficient=0.1", "algorithm.advantage=gae", "rollout.drop_zero_variance=false"
    )
    assert beside["reference"] == alone["weights"]
    assert beside["critic"] == pytest.approx(alone["weights"] + alone["gradients"] + alone["Adam"], rel=0.01)
    assert beside["together"] > alone["together"]


def test_plan_spreads_experts_over_ep(capsys: pytest.CaptureFixture[str]) -> None:
    mixture = ("model.num_experts=8", "model.moe_intermediate_size=4096", "layout.dp=2")
    whole, spread = predicted(capsys, *mixture), predicted(capsys, *mixture, "layout.ep=2")
    experts = 8 * 8 * 3 * 1024 * 4096 * 4
    assert whole["weights"] - spread["weights"] == pytest.approx(experts / 2, rel=0.01)
    assert spread["Adam"] == pytest.approx(whole["Adam"], rel=0.01), "each half is cut over half of the ranks"


@pytest.mark.parametrize("case", ["small", "experts"])
def test_memory_that_was_predicted_is_what_a_trainer_takes(case: str, tmp_path: Path) -> None:
    """Cases of the benchmark, in a process of its own: saved tensors closely, the peak roughly."""
    script = Path(__file__).parents[2] / "benchmarks" / "bench_memory.py"
    command = [sys.executable, "-W", "ignore", str(script), case, "--json", str(tmp_path / "found.json")]
    subprocess.run(command, check=True, timeout=200, capture_output=True)
    found = json.loads((tmp_path / "found.json").read_text())[case]
    assert found["activations_ratio"] == pytest.approx(1.0, abs=0.03)
    assert 0.75 < found["peak_ratio"] < 1.25


def test_plan_counts_the_weights_of_a_model_directory(capsys: pytest.CaptureFixture[str], elsewhere: Path) -> None:
    source = load_source(DataSection())
    make_model(str(elsewhere / "model"), ModelSection(num_hidden_layers=4), source.tokenizer, seed=0)
    assert main(["plan", "arithmetic.toml", "--set", "model.path=model"]) == 0
    assert "254,784 parameters in all" in capsys.readouterr().out


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
