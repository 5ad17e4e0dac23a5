"""The run directory: never written twice, and truncated to its checkpoint on resume."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from vime_train.config import RunConfig
from vime_train.state import RunDirectory, StateError


def config(root: Path, **sections: object) -> RunConfig:
    return RunConfig.model_validate({"run_dir": str(root), **sections})


def save(run: RunDirectory, iteration: int) -> None:
    with run.checkpoints.write(iteration=iteration, weight_version=iteration, optimizer_steps=0, data={}):
        pass


def test_a_new_run_writes_its_whole_configuration(tmp_path: Path) -> None:
    given = config(tmp_path / "a" / "run", seed=7)
    run = RunDirectory.create(given)
    written = json.loads(run.config_path.read_text())
    assert RunConfig.model_validate(written) == given
    assert written["optimizer"]["lr"] == given.optimizer.lr
    assert run.logs.is_dir()


def test_an_empty_directory_may_be_used(tmp_path: Path) -> None:
    assert RunDirectory.create(config(tmp_path)).root == tmp_path


def test_a_run_directory_that_exists_is_refused_and_left_alone(tmp_path: Path) -> None:
    run = RunDirectory.create(config(tmp_path / "run"))
    save(run, 4)
    before = {path: path.read_bytes() for path in run.root.rglob("*") if path.is_file()}
    with pytest.raises(StateError, match=r"exists and holds a run \(newest checkpoint after iteration 4\)") as caught:
        RunDirectory.create(config(tmp_path / "run", seed=1))
    assert "vime-train resume" in str(caught.value)
    assert "--set run_dir=" in str(caught.value)
    assert {path: path.read_bytes() for path in run.root.rglob("*") if path.is_file()} == before


def test_a_file_in_the_place_of_the_run_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("mine")
    with pytest.raises(StateError, match="a file of that name"):
        RunDirectory.create(config(tmp_path / "run"))


def test_a_directory_with_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(StateError, match="exists and holds 1 entries"):
        RunDirectory.create(config(tmp_path))


def test_resume_wants_a_run(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="is not a run directory"):
        RunDirectory.resume(tmp_path)


def test_resume_wants_a_checkpoint(tmp_path: Path) -> None:
    run = RunDirectory.create(config(tmp_path / "run"))
    with pytest.raises(StateError, match="no checkpoint to go on from"):
        RunDirectory.resume(run.root)


def test_resume_drops_records_after_the_checkpoint_and_half_a_line(tmp_path: Path) -> None:
    run = RunDirectory.create(config(tmp_path / "run"))
    save(run, 2)
    lines = [json.dumps({"step": iteration, "reward": iteration / 10}) for iteration in range(5)]
    run.metrics.write_text("\n".join(lines) + '\n{"step": 5, "rew')
    _, _, checkpoint = RunDirectory.resume(run.root)
    assert checkpoint.iteration == 2
    assert run.metrics.read_text() == "\n".join(lines[:3]) + "\n"


def test_a_line_that_a_full_disk_cut_off_costs_no_other_line(tmp_path: Path) -> None:
    run = RunDirectory.create(config(tmp_path / "run"))
    save(run, 2)
    run.metrics.write_text('{"step": 0}\n{"step": 1, "rew\n{"step": 2}\n')
    RunDirectory.resume(run.root)
    assert run.metrics.read_text() == '{"step": 0}\n{"step": 2}\n'


@pytest.mark.parametrize("text", ["", '{"seed": 1, "layo', '{"sead": 1}'])
def test_a_damaged_configuration_is_told(tmp_path: Path, text: str) -> None:
    run = RunDirectory.create(config(tmp_path / "run"))
    save(run, 1)
    run.config_path.write_text(text)
    with pytest.raises(StateError, match=r"run/config\.json cannot be read: it is damaged, or of a version"):
        RunDirectory.resume(run.root)


def test_resume_sweeps_what_a_killed_run_had_begun_to_write(tmp_path: Path) -> None:
    run = RunDirectory.create(config(tmp_path / "run"))
    save(run, 1)
    half = run.root / "checkpoints" / ".writing-iteration-000002"
    half.mkdir()
    RunDirectory.resume(run.root)
    assert not half.exists()


def test_a_run_that_was_moved_resumes_where_it_is(tmp_path: Path) -> None:
    run = RunDirectory.create(config(tmp_path / "run"))
    save(run, 1)
    moved = run.root.rename(tmp_path / "moved")
    found, resumed, _ = RunDirectory.resume(moved)
    assert found.root == moved
    assert resumed.run_dir == str(moved)


HOLDING = """
import pathlib, sys, time
from vime_train.state import RunDirectory
with RunDirectory(pathlib.Path(sys.argv[1]), keep=1).held():
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_run_that_is_still_going_on_is_not_resumed_and_not_touched(tmp_path: Path) -> None:
    """It would lose the checkpoint that it is writing; once it is killed, the directory is free."""
    run = RunDirectory.create(config(tmp_path / "run"))
    save(run, 1)
    half = run.root / "checkpoints" / ".writing-iteration-000002"
    half.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(run.root)], stdout=subprocess.PIPE, text=True
    ) as going_on:
        assert going_on.stdout is not None
        assert going_on.stdout.readline() == "held\n"
        with pytest.raises(StateError, match=r"run is the directory of a run that is still going on: end that first"):
            RunDirectory.resume(run.root)
        assert half.is_dir()
        going_on.kill()
    RunDirectory.resume(run.root)
    assert not half.exists()
