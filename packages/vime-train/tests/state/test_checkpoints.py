"""A checkpoint is whole or absent (law T3), and the newest `keep` stay; one that lost something later is told."""

from __future__ import annotations

import json
import os
import shutil
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


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "3", '{"format": 1}', '{"format": 2, "iteration": 1}'])
def test_a_record_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    write(checkpoints, 1)
    (tmp_path / "iteration-000001" / "checkpoint.json").write_text(text)
    with pytest.raises(StateError, match=r"iteration-000001/checkpoint\.json"):
        checkpoints.list()


def test_the_record_is_plain_json(tmp_path: Path) -> None:
    write(Checkpoints(tmp_path, keep=1), 1)
    record = json.loads((tmp_path / "iteration-000001" / "checkpoint.json").read_text())
    assert record == {
        "format": 2,
        "iteration": 1,
        "weight_version": 1,
        "optimizer_steps": 4,
        "data": {"position": 1},
        "files": {"trainer/weights": 7},
    }


def test_the_one_just_written_is_never_the_one_that_goes(tmp_path: Path) -> None:
    """Going back to an old iteration and on from there must not remove what is written now."""
    checkpoints = Checkpoints(tmp_path, keep=1)
    write(checkpoints, 5)
    write(checkpoints, 3)
    assert 3 in [found.iteration for found in checkpoints.list()]


def damaged(tmp_path: Path) -> Checkpoints:
    """Two checkpoints, of several files each, of which something will happen to the newest."""
    checkpoints = Checkpoints(tmp_path, keep=2)
    for iteration in (3, 4):
        with checkpoints.write(iteration=iteration, weight_version=1, optimizer_steps=4, data={}) as path:
            (path / "weights").mkdir()
            (path / "weights" / "model.safetensors").write_bytes(bytes(1000))
            (path / "trainer-00000.json").write_text("{}")
    return checkpoints


FILES = ["trainer/weights/model.safetensors", "trainer/trainer-00000.json", "checkpoint.json"]


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
@pytest.mark.parametrize("name", FILES)
def test_a_checkpoint_that_was_cut_off_is_told_with_the_one_before_it(tmp_path: Path, name: str, keep: float) -> None:
    checkpoints = damaged(tmp_path)
    file = tmp_path / "iteration-000004" / name
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(StateError) as caught:
        checkpoints.to_resume()
    assert str(file) in str(caught.value)
    assert f"remove {tmp_path}/iteration-000004 to go on from iteration 3, which is whole." in str(caught.value)
    shutil.rmtree(tmp_path / "iteration-000004")  # as the message says
    resumed = checkpoints.to_resume()
    assert resumed is not None
    assert resumed.iteration == 3


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_told(tmp_path: Path, name: str) -> None:
    checkpoints = damaged(tmp_path)
    (tmp_path / "iteration-000004" / name).unlink()
    with pytest.raises(StateError, match=rf"iteration-000004/{name}.*to go on from iteration 3"):
        checkpoints.to_resume()


def test_without_a_whole_one_nothing_is_gone_on_from(tmp_path: Path) -> None:
    checkpoints = damaged(tmp_path)
    for iteration in (3, 4):
        (tmp_path / f"iteration-00000{iteration}" / "trainer" / "trainer-00000.json").write_text("{")
    with pytest.raises(StateError, match=r"has 1 of 2 bytes: .* no older checkpoint is whole: start the run again"):
        checkpoints.to_resume()


def test_a_file_that_was_added_does_no_harm(tmp_path: Path) -> None:
    checkpoints = damaged(tmp_path)
    (tmp_path / "iteration-000004" / "notes.txt").write_text("mine")
    assert checkpoints.to_resume() == checkpoints.latest()


def test_writing_an_iteration_again_keeps_the_old_one_until_the_new_one_is_whole(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    write(checkpoints, 2, "old")
    with pytest.raises(OSError, match="disk full"):
        fill_the_disk(checkpoints)
    assert [(found.trainer_path / "weights").read_text() for found in checkpoints.list()] == ["old"]


@pytest.mark.parametrize("renamed", [False, True])
def test_a_writer_that_died_between_two_renames_lost_nothing(tmp_path: Path, renamed: bool) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    write(checkpoints, 2, "old")
    (tmp_path / "iteration-000002").rename(tmp_path / ".replaced-iteration-000002")
    if renamed:
        write(checkpoints, 2, "new")
    checkpoints.sweep()
    found = [(one.trainer_path / "weights").read_text() for one in checkpoints.list()]
    assert found == ["new" if renamed else "old"]
    assert os.listdir(tmp_path) == ["iteration-000002"]


ON_A_FULL_DISK = """
import pathlib, resource, sys
from vime_train.state import Checkpoints
from vime_train.state._atomic import write_text
checkpoints = Checkpoints(pathlib.Path(sys.argv[1]), keep=2)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
try:
    with checkpoints.write(iteration=2, weight_version=2, optimizer_steps=8, data={}) as path:
        (path / "weights").write_bytes(bytes(8192))
except OSError as error:
    print(error)
try:
    write_text(pathlib.Path(sys.argv[1], "metrics.jsonl"), "x" * 8192)
except OSError as error:
    print(error)
"""


def test_a_write_that_the_kernel_refuses_leaves_what_was_there(tmp_path: Path) -> None:
    """A limit on the size of files, which fails a write as a full disk does, in the middle of it."""
    write(Checkpoints(tmp_path, keep=2), 1)
    (tmp_path / "metrics.jsonl").write_text("old")
    done = subprocess.run(
        [sys.executable, "-c", ON_A_FULL_DISK, str(tmp_path)], check=True, capture_output=True, text=True
    )
    assert done.stdout.count("File too large") == 2
    assert f"File too large: '{tmp_path}/metrics.jsonl'" in done.stdout
    assert sorted(os.listdir(tmp_path)) == ["iteration-000001", "metrics.jsonl"]
    assert (tmp_path / "metrics.jsonl").read_text() == "old"
    assert Checkpoints(tmp_path, keep=2).to_resume() is not None
