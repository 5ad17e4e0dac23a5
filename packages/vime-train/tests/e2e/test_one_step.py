"""One step off-policy: generation beside training, under older weights, and the same numbers whatever dies."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM

from vime_train.rollout import load_rollouts

if TYPE_CHECKING:
    from conftest import Run

pytestmark = pytest.mark.timeout(1800)  # the first test to ask for a run waits for all of it

CONFIG = Path(__file__).with_name("tiny.toml")
SETTINGS = ("rollout.one_step_off_policy=true", "debug.save_rollouts=true", "train.iterations=5", "checkpoint.keep=6")
OVERRIDES = [word for setting in SETTINGS for word in ("--set", setting)]
Stages = MappingProxyType[str, "Watched"]


def records(root: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, command: Run) -> Path:
    root = tmp_path_factory.mktemp("straight") / "run"
    done = command(root, "run", str(CONFIG), *OVERRIDES, "--set", f"run_dir={root}")
    assert done.code == 0, done.errors
    return root


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory, command: Run) -> tuple[Path, Stages]:
    """A fault that is due in iteration `k` strikes while its rollouts are generated, and iteration `k - 1` trained."""
    root = tmp_path_factory.mktemp("troubled") / "run"
    fault = "kill-engine@2 kill-trainer@3"
    stages = {"run": command(root, "run", str(CONFIG), *OVERRIDES, "--set", f"run_dir={root}", fault=fault)}
    for name, fault in {"killed": "SIGKILL@4", "asked to end": "SIGTERM@5", "to the end": ""}.items():
        stages[name] = command(root, "resume", str(root), fault=fault)
    return root, MappingProxyType(stages)


def test_an_iteration_is_sampled_under_weights_two_syncs_older(straight: Path) -> None:
    for iteration in range(1, 6):
        path = straight / "rollouts" / f"iteration-{iteration:06d}" / "rollouts.jsonl"
        samples = [sample for line in path.read_text().splitlines() for sample in json.loads(line)["samples"]]
        assert {sample["weight_version"] for sample in samples} == {max(0, iteration - 2)}


def test_the_figures_tell_that_it_is_off_policy_and_every_sync_is_checked(straight: Path) -> None:
    trained = records(straight)[1:]
    assert [record["rollout/staleness"] for record in trained] == [0, 1, 1, 1, 1]
    assert [record["rollout/off_policy_tokens"] for record in trained] == [0, 1, 1, 1, 1]
    assert all(0 < record["check/max_log_prob_difference"] < 1e-3 for record in trained)


def largest_difference(straight: Path, *, iteration: int, version: int) -> float:
    """Between the log-probs of an iteration's rollouts and those of transformers under the weights of a checkpoint."""
    weights = straight / "checkpoints" / f"iteration-{version:06d}" / "trainer" / "weights"
    model = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32).eval()
    differences = []
    for rollout in load_rollouts(straight / "rollouts" / f"iteration-{iteration:06d}")[:32]:
        for sample in rollout.samples:
            tokens = torch.tensor([sample.tokens])
            with torch.no_grad():
                log_probs = model(tokens).logits[0, :-1].log_softmax(-1).gather(-1, tokens[0, 1:, None])[:, 0]
            response = log_probs[-sample.response_length :].numpy()
            differences.append(np.abs(response - np.array(sample.rollout_log_probs)).max())
    return float(max(differences))


def test_log_probs_are_those_of_the_weights_that_sampled(straight: Path) -> None:
    assert largest_difference(straight, iteration=4, version=2) < 1e-3
    assert largest_difference(straight, iteration=4, version=3) > 1e-2


def test_the_phases_fit_into_the_step_and_hidden_generation_is_named(straight: Path) -> None:
    for record in records(straight)[1:]:
        phases = [record[f"time/{name}"] for name in ("generate", "check", "plan", "train", "sync")]
        assert sum(phases) <= record["time/step"]
    assert ["time/generate_hidden" in record for record in records(straight)[1:]] == [True] * 4 + [False]
    assert any(record.get("time/generate_hidden", 0) > 0 for record in records(straight))


def test_every_stage_ended_as_it_was_made_to(troubled: tuple[Path, Stages]) -> None:
    root, stages = troubled
    assert [stage.code for stage in stages.values()] == [1, -9, 143, 0]
    assert "restarting engine-0 (1)" in stages["run"].errors
    assert "vime-train: trainer-1, asked to train iteration 2, died: its process is gone" in stages["run"].errors
    assert f"vime-train resume {root}" in stages["asked to end"].errors
    assert "generation failed" not in stages["run"].errors + stages["asked to end"].errors


def test_the_troubled_run_ends_in_the_numbers_of_the_straight_run(
    straight: Path, troubled: tuple[Path, Stages]
) -> None:
    root, _ = troubled
    for one, other in zip(records(straight), records(root), strict=True):
        names = [name for name in one if not name.startswith("time/") and name != "engine/restarts"]
        assert set(names) <= other.keys()
        for name in names:
            assert other[name] == one[name] or math.isclose(other[name], one[name], rel_tol=1e-6), name
    expected, found = (load_file(path / "export" / "model.safetensors") for path in (straight, root))
    for name, weight in expected.items():
        np.testing.assert_allclose(found[name], weight, rtol=0, atol=1e-6, err_msg=name)


def test_nothing_is_left_behind(troubled: tuple[Path, Stages], left: Callable[[Path, list[int]], list[str]]) -> None:
    root, stages = troubled
    assert left(root, [stage.pid for stage in stages.values()]) == []


def test_a_reward_that_raises_ahead_ends_the_run_once_what_is_trained_is_saved(tmp_path: Path, command: Run) -> None:
    root = tmp_path / "run"
    settings = [*OVERRIDES, "--set", "checkpoint.every=0", "--set", f"run_dir={root}"]
    done = command(root, "run", str(CONFIG), *settings, fault="raise@3")
    assert done.code == 1
    assert "generation failed, which ends the run after the iteration under way" in done.errors
    assert "the user's reward divides by zero" in done.errors.rpartition("vime-train: ")[2]
    assert "Iteration 2 is saved" in done.errors
    assert [record["step"] for record in records(root)] == [0, 1, 2]
    assert not (root / "checkpoints" / "iteration-000002" / "ahead").exists()
    again = command(root, "resume", str(root))
    assert again.code == 0, again.errors
    assert [record["rollout/staleness"] for record in records(root)[1:]] == [0, 1, 0, 1, 1]


def test_weights_that_did_not_arrive_stop_the_run(tmp_path: Path, command: Run) -> None:
    """Law T2: sync 1 sends old weights under the new name; the rollouts at hand are older, and cannot tell."""
    settings = [*OVERRIDES, "--set", "supervised.steps=20", "--set", f"run_dir={tmp_path}/run"]
    done = command(tmp_path, "run", str(CONFIG), *settings, fault="stale-weights@1")
    assert done.code == 1
    assert "sync 1: vLLM's and Megatron's log-probs of 8 samples differ by up to" in done.errors
    assert [record["step"] for record in records(tmp_path / "run")] == [0, 1]
