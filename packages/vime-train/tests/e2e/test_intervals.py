"""A critic that is trained alone at first, and a reference that follows the policy: whole runs, also resumed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Run

pytestmark = pytest.mark.timeout(1200)  # the first test to ask for a run waits for all of it

CONFIG = Path(__file__).with_name("tiny.toml")
SETTINGS = (
    "algorithm.advantage=gae",
    "algorithm.kl.coefficient=0.1",
    "algorithm.kl.reference_every=2",
    "algorithm.old_log_probs=recompute",
    "critic.warmup_iterations=2",
    "rollout.drop_zero_variance=false",
    "train.global_batch_size=128",
    "train.iterations=5",
    "checkpoint.keep=5",
    "evaluation.problems=0",
)


def records(root: Path) -> list[dict[str, float]]:
    lines = (root / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if not k.startswith("time/")} for line in lines]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, command: Run) -> Path:
    root = tmp_path_factory.mktemp("intervals") / "run"
    overrides = [word for setting in (*SETTINGS, f"run_dir={root}") for word in ("--set", setting)]
    done = command(root, "run", str(CONFIG), *overrides)
    assert done.code == 0, done.errors
    return root


def test_the_critic_is_trained_alone_at_first(run: Path) -> None:
    trained = records(run)[1:]
    assert ["train/loss" in record for record in trained] == [False, False, True, True, True]
    assert all(record["train/critic_grad_norm"] > 0 for record in trained)


def test_the_reference_is_the_policy_of_the_last_interval(run: Path) -> None:
    """The policy moves from iteration 3 on, and is the reference again after iteration 4."""
    first, second, third = (record["train/kl"] for record in records(run)[3:])
    assert first == pytest.approx(0, abs=1e-7)
    assert second > 1e-5
    assert third == pytest.approx(0, abs=1e-7)


def test_a_resumed_run_ends_in_the_same_numbers(run: Path, tmp_path: Path, command: Run) -> None:
    """Resumed between two intervals, where the reference is an older policy, and the critic is older than it."""
    root = tmp_path / "run"
    shutil.copytree(run, root)
    for iteration in (4, 5):
        shutil.rmtree(root / "checkpoints" / f"iteration-{iteration:06d}")
    done = command(root, "resume", str(root))
    assert done.code == 0, done.errors
    assert records(root) == records(run)
