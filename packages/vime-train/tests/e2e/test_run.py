"""The undisturbed run: what it learns, what it writes, and what it does not do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from vime_train.config import RunConfig

if TYPE_CHECKING:
    from conftest import Life, Run

pytestmark = pytest.mark.timeout(1800)  # the first test to ask for a run waits for all of it

LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}


def test_every_iteration_is_in_the_metrics(straight: Life) -> None:
    assert [record["step"] for record in straight.metrics()] == list(range(7))


def test_log_probs_of_both_sides_agree_after_every_sync(straight: Life) -> None:
    """Law T2: vLLM's and Megatron's log-probs of the sampled tokens, at most 1e-3 apart."""
    for record in straight.metrics()[1:]:
        assert 0 <= record["check/mean_log_prob_difference"] <= record["check/max_log_prob_difference"] < 1e-3
        assert record["check/max_log_prob_difference"] > 0


def test_the_global_batch_varies_and_rollouts_have_siblings(straight: Life) -> None:
    for record in straight.metrics()[1:]:
        assert record["rollout/rollouts"] == 128
        assert record["rollout/samples"] > 128
        assert record["response/longest"] >= 5 * record["response/shortest"]


def test_every_phase_is_timed(straight: Life) -> None:
    for record in straight.metrics()[1:]:
        phases = [record[f"time/{name}"] for name in ("generate", "check", "plan", "train", "sync")]
        assert all(seconds >= 0 for seconds in phases)
        assert sum(phases) <= record["time/step"]
        assert record["time/plan"] < record["time/orchestration"] < record["time/step"]


def test_the_run_directory_is_complete(straight: Life) -> None:
    config = RunConfig.model_validate_json((straight.root / "config.json").read_text())
    assert config.seed == 3
    assert config.train.global_batch_size == 64
    kept = sorted(path.name for path in (straight.root / "checkpoints").iterdir())
    assert kept == ["iteration-000005", "iteration-000006"]
    assert json.loads((straight.root / "export" / "config.json").read_text())["tie_word_embeddings"] is False
    assert (straight.root / "export" / "model.safetensors").stat().st_size > 0
    assert sorted(path.name for path in (straight.root / "logs").iterdir()) == [
        "engine-0.log",
        "trainer-0.log",
        "trainer-1.log",
    ]


def test_every_listener_is_on_loopback(straight: Life) -> None:
    """Ray and torch's store do not do this by themselves; the socket table was read twice a second."""
    seen = straight.stages["run"].listeners
    assert seen
    assert seen <= LOOPBACK


def test_nothing_is_left_behind(straight: Life, left: Callable[[Path, list[int]], list[str]]) -> None:
    run = straight.stages["run"]
    assert len(run.processes) > 5  # Ray's own, two trainers and an engine were seen
    assert left(straight.root, [run.pid]) == []


def test_a_run_directory_that_exists_is_refused_before_anything_starts(straight: Life, command: Run) -> None:
    config = Path(__file__).with_name("tiny.toml")
    again = command(straight.root, "run", str(config), "--set", f"run_dir={straight.root}")
    assert again.code != 0
    assert "exists and holds a run (newest checkpoint after iteration 6)" in again.errors
    assert "Traceback" not in again.errors
    assert len(again.processes) <= 1
    assert [record["step"] for record in straight.metrics()] == list(range(7))


@pytest.mark.parametrize("name", ["trainer-0.log", "engine-0.log"])
def test_each_process_tells_its_id_in_its_log(straight: Life, name: str) -> None:
    first = (straight.root / "logs" / name).read_text().splitlines()[0]
    assert int(first.removeprefix("process ")) in straight.stages["run"].processes
