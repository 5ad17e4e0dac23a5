"""A whole run whose answers take several iterations, and the same run resumed with groups in its buffer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Run

CONFIG = Path(__file__).with_name("partial.toml")


def records(root: Path) -> list[dict[str, float]]:
    lines = (root / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if not k.startswith("time/")} for line in lines]


@pytest.fixture(scope="module")
def partial(tmp_path_factory: pytest.TempPathFactory, command: Run) -> Path:
    root = tmp_path_factory.mktemp("partial") / "run"
    done = command(root, "run", str(CONFIG), "--set", f"run_dir={root}")
    assert done.code == 0, done.errors
    return root


def test_answers_go_on_under_newer_weights_and_the_newest_tokens_are_checked(partial: Path) -> None:
    first, *later = records(partial)[1:]
    assert first["rollout/rollouts"] == 0
    assert [record["rollout/groups_buffered"] > 0 for record in later] == [True] * 3
    assert all(record["rollout/rollouts_resumed"] > 0 for record in later)
    assert all(0 < record["rollout/off_policy_tokens"] < 1 for record in later)
    assert all(0 < record["check/max_log_prob_difference"] < 1e-3 for record in later)


def test_there_was_no_evaluation_before_training(partial: Path) -> None:
    assert ["eval/accuracy" in record for record in records(partial)] == [False, False, True, False, True]


def test_every_rank_was_profiled_in_the_chosen_iteration(partial: Path) -> None:
    written = sorted(str(path.relative_to(partial / "profile")) for path in (partial / "profile").rglob("*.gz"))
    assert written == [f"iteration-000003/trainer-{rank}.trace.json.gz" for rank in range(2)]


def test_a_run_resumed_with_groups_in_its_buffer_ends_in_the_same_numbers(
    partial: Path, tmp_path: Path, command: Run
) -> None:
    root = tmp_path / "run"
    shutil.copytree(partial, root)
    for name in ("iteration-000003", "iteration-000004"):
        shutil.rmtree(root / "checkpoints" / name)
    done = command(root, "resume", str(root))
    assert done.code == 0, done.errors
    assert records(root) == records(partial)
