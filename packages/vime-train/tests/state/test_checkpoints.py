"""A checkpoint is whole or absent (law T3), and the newest `keep` stay."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vime_train.state import Checkpoint, Checkpoints, StateError


def write(checkpoints: Checkpoints, iteration: int, text: str = "weights") -> None:
    with checkpoints.write(
        iteration=iteration, weight_version=iteration, optimizer_steps=4 * iteration, data={"position": iteration}
    ) as path:
        (path / "weights").write_text(text)


def test_a_checkpoint_says_how_far_the_run_had_come(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    write(checkpoints, 3)
    assert checkpoints.latest() == Checkpoint(
        path=tmp_path / "iteration-000003", iteration=3, weight_version=3, optimizer_steps=12, data={"position": 3}
    )
    assert (checkpoints.list()[0].trainer_path / "weights").read_text() == "weights"


def test_no_checkpoint_in_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "none", keep=1).latest() is None


@settings(max_examples=15, deadline=None)  # every write is synced to the disk
@given(iterations=st.lists(st.integers(0, 10**7), min_size=1, max_size=8, unique=True), keep=st.integers(1, 4))
def test_the_newest_stay(tmp_path_factory: pytest.TempPathFactory, iterations: list[int], keep: int) -> None:
    checkpoints = Checkpoints(tmp_path_factory.mktemp("run"), keep=keep)
    for written in sorted(iterations):
        write(checkpoints, written)
        assert checkpoints.list()[-1].iteration == written
    assert [found.iteration for found in checkpoints.list()] == sorted(iterations)[-keep:]


def test_writing_an_iteration_again_replaces_it(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    write(checkpoints, 1, "old")
    write(checkpoints, 1, "new")
    assert [(found.trainer_path / "weights").read_text() for found in checkpoints.list()] == ["new"]


def fill_the_disk(checkpoints: Checkpoints) -> None:
    with checkpoints.write(iteration=2, weight_version=2, optimizer_steps=8, data={}) as path:
        (path / "weights").write_text("half")
        raise OSError("disk full")


def test_an_error_while_writing_leaves_no_checkpoint(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    write(checkpoints, 1)
    with pytest.raises(OSError, match="disk full"):
        fill_the_disk(checkpoints)
    assert [found.iteration for found in checkpoints.list()] == [1]
    assert os.listdir(tmp_path) == ["iteration-000001"]


KILLED_WHILE_WRITING = """
import pathlib, sys, time
from vime_train.state import Checkpoints
checkpoints = Checkpoints(pathlib.Path(sys.argv[1]), keep=2)
with checkpoints.write(iteration=2, weight_version=2, optimizer_steps=8, data={}) as path:
    (path / "weights").write_text("half")
    print("writing", flush=True)
    time.sleep(60)
"""


def test_a_killed_writer_leaves_no_checkpoint(tmp_path: Path) -> None:
    write(Checkpoints(tmp_path, keep=2), 1)
    with subprocess.Popen(
        [sys.executable, "-c", KILLED_WHILE_WRITING, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        writer.send_signal(signal.SIGKILL)
    checkpoints = Checkpoints(tmp_path, keep=2)
    assert [found.iteration for found in checkpoints.list()] == [1]
    assert len(os.listdir(tmp_path)) == 2
    checkpoints.sweep()
    assert os.listdir(tmp_path) == ["iteration-000001"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 1}', '{"format": 2, "iteration": 1}'])
def test_a_record_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    write(checkpoints, 1)
    (tmp_path / "iteration-000001" / "checkpoint.json").write_text(text)
    with pytest.raises(StateError, match=r"iteration-000001/checkpoint\.json"):
        checkpoints.list()


def test_the_record_is_plain_json(tmp_path: Path) -> None:
    write(Checkpoints(tmp_path, keep=1), 1)
    record = json.loads((tmp_path / "iteration-000001" / "checkpoint.json").read_text())
    assert record == {"format": 1, "iteration": 1, "weight_version": 1, "optimizer_steps": 4, "data": {"position": 1}}


def test_the_one_just_written_is_never_the_one_that_goes(tmp_path: Path) -> None:
    """Going back to an old iteration and on from there must not remove what is written now."""
    checkpoints = Checkpoints(tmp_path, keep=1)
    write(checkpoints, 5)
    write(checkpoints, 3)
    assert 3 in [found.iteration for found in checkpoints.list()]
