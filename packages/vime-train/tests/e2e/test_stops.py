"""Runs that must stop: Ctrl-C at any time, weights that did not arrive, training that diverges."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Run

pytestmark = pytest.mark.timeout(1800)  # the first test to ask for a run waits for all of it

CONFIG = str(Path(__file__).with_name("tiny.toml"))


def test_ctrl_c_while_everything_starts_leaves_nothing(
    tmp_path: Path,
    begin: Callable[..., subprocess.Popen[str]],
    left: Callable[[Path, list[int]], list[str]],
) -> None:
    """As a terminal sends it: to every process of the group, in the middle of the supervised steps."""
    process = begin(tmp_path, "run", CONFIG, "--set", f"run_dir={tmp_path}/run")
    assert process.stderr is not None
    assert any("supervised" in line for line in process.stderr)
    os.killpg(process.pid, signal.SIGINT)
    process.wait(timeout=60)
    assert process.returncode == 130
    assert left(tmp_path, [process.pid]) == []


def test_weights_that_did_not_arrive_stop_the_run(tmp_path: Path, command: Run) -> None:
    """Law T2: sync 1 sends old weights under the new version's name; iteration 2 must not train on their samples."""
    run = ("run", CONFIG, "--set", f"run_dir={tmp_path}/run")
    done = command(tmp_path, *run, "--set", "supervised.steps=20", fault="stale-weights@1")
    assert done.code == 1
    found = re.search(r"sync 1: vLLM's and Megatron's log-probs of \d+ samples differ by up to ([\d.]+)", done.errors)
    assert found is not None, done.errors
    assert float(found[1]) > 0.1
    assert "engine.max_log_prob_difference = 0.001" in done.errors
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2


def test_training_that_diverges_stops_and_says_where(tmp_path: Path, command: Run) -> None:
    """A learning rate that throws the weights away: no NaN is trained on, and the run does not go on for nothing."""
    run = ("run", CONFIG, "--set", f"run_dir={tmp_path}/run")
    done = command(tmp_path, *run, "--set", "supervised.lr=1e30", "--set", "supervised.warmup_steps=0")
    assert done.code == 1
    assert "8 optimizer steps in a row were skipped" in done.errors, done.errors
    assert "not finite" in done.errors
    assert "supervised.lr" in done.errors
    assert "model.embed_tokens" in done.errors or "layers" in done.errors  # from the trainer's log


def test_a_machine_that_is_full_is_told_in_a_sentence(
    tmp_path: Path, command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray ends processes when memory runs out; here it finds that 2% of it is too much."""
    monkeypatch.setenv("RAY_memory_usage_threshold", "0.02")
    done = command(tmp_path, "run", CONFIG, "--set", f"run_dir={tmp_path}/run", "--set", "engine.max_restarts=0")
    assert done.code == 1
    assert re.search(r"this machine's memory was full \([\d.]+GB used / [\d.]+GB limit\)", done.errors), done.errors
    assert "end other programs" in done.errors
