"""A whole run of a model with experts, spread over the trainer ranks: served, synced, checked, resumed and exported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from conftest import Run

CONFIG = Path(__file__).with_name("experts.toml")


def records(root: Path) -> list[dict[str, float]]:
    lines = (root / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if not k.startswith("time/")} for line in lines]


@pytest.fixture(scope="module")
def experts(tmp_path_factory: pytest.TempPathFactory, command: Run) -> Path:
    root = tmp_path_factory.mktemp("experts") / "run"
    done = command(root, "run", str(CONFIG), "--set", f"run_dir={root}")
    assert done.code == 0, done.errors
    return root


def test_both_sides_agree_on_experts_after_every_sync(experts: Path) -> None:
    _, *iterations = records(experts)
    assert len(iterations) == 3
    assert all(0 < record["check/max_log_prob_difference"] < 1e-3 for record in iterations)


def test_the_supervised_start_and_the_rewards_are_learned_from(experts: Path) -> None:
    start, *iterations = records(experts)
    assert start["supervised/loss"] < 1.0
    assert iterations[-1]["rollout/reward"] > 0.1


def test_the_export_is_a_model_with_experts(experts: Path) -> None:
    from transformers import AutoModelForCausalLM

    model, report = AutoModelForCausalLM.from_pretrained(experts / "export", output_loading_info=True)
    assert type(model).__name__ == "Qwen3MoeForCausalLM"
    assert not report["missing_keys"]
    assert torch.isfinite(model(torch.tensor([[2, 3, 4]])).logits).all()


def test_a_resumed_run_with_experts_ends_in_the_same_numbers(experts: Path, tmp_path: Path, command: Run) -> None:
    root = tmp_path / "run"
    shutil.copytree(experts, root)
    shutil.rmtree(root / "checkpoints" / "iteration-000003")
    done = command(root, "resume", str(root))
    assert done.code == 0, done.errors
    assert records(root) == records(experts)
