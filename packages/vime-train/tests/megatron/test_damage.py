"""Disks that are full and files that are cut off: the error names the file, and nothing that was there is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
    }


@pytest.fixture
def saved(
    start: Callable[..., Any], run_config: Callable[..., Any], plan_batches: Callable[..., Any], tmp_path: Path
) -> Path:
    config = run_config({"dp": 2})
    job = start(config)
    job.train(plan_batches(config))
    job.call("save", str(tmp_path / "checkpoint"))
    return tmp_path / "checkpoint"


@pytest.mark.parametrize(
    "name",
    [
        "weights/model.safetensors",
        "trainer-00000.safetensors",
        "trainer-00000.json",
        "trainer-00001.safetensors",
        "trainer-00001.json",
    ],
)
def test_a_file_that_was_cut_off_is_named(
    saved: Path, name: str, start: Callable[..., Any], run_config: Callable[..., Any]
) -> None:
    file = saved / name
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(Exception, match=rf"ValueError: {file} cannot be read \(.*\): it is cut off or damaged"):
        start(run_config({"dp": 2})).call("load", str(saved))


def test_weights_that_were_cut_off_are_named_when_trainers_start(
    saved: Path, ranks: Any, run_config: Callable[..., Any], start: Callable[..., Any]
) -> None:
    file = saved / "weights" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(Exception, match=rf"{file} cannot be read .* it is cut off or damaged"):
        start(run_config({"dp": 2}), saved / "weights")


@pytest.mark.parametrize("size", [0, 30_000], ids=["at once", "in the middle"])
def test_a_full_disk_is_told_by_every_rank_and_what_was_there_stays(
    size: int,
    start: Callable[..., Any],
    run_config: Callable[..., Any],
    plan_batches: Callable[..., Any],
    read_weights: Callable[[Path], dict[str, np.ndarray]],
    tmp_path: Path,
) -> None:
    config = run_config({"dp": 2})
    job = start(config)
    job.call("export", str(tmp_path / "out"))
    before = contents(tmp_path)
    job.train(plan_batches(config))
    job.call("limit_files", size, target="rank")
    with pytest.raises(Exception, match="OSError") as caught:
        job.call("export", str(tmp_path / "out"))
    assert str(caught.value).count("File too large") == 2, "rank 1 tells what rank 0 could not do"
    assert f"export_weights: rank 0 could not write {tmp_path}/out: [Errno 27]" in str(caught.value)
    assert contents(tmp_path) == before
    job.call("limit_files", -1, target="rank")
    job.call("export", str(tmp_path / "out"))
    assert contents(tmp_path) != before, "with room again the trainers go on"


def test_optimizer_state_that_does_not_fit_is_named(
    start: Callable[..., Any], run_config: Callable[..., Any], plan_batches: Callable[..., Any], tmp_path: Path
) -> None:
    """One rank, whose weights fit and whose optimizer state, three times as large, does not."""
    config = run_config({})
    job = start(config)
    job.train(plan_batches(config))
    job.call("save", str(tmp_path / "fits"))
    weights = (tmp_path / "fits" / "weights" / "model.safetensors").stat().st_size
    job.call("limit_files", 2 * weights, target="rank")
    with pytest.raises(Exception, match=rf"OSError: .*File too large: '{tmp_path}/full/trainer-00000\.safetensors'"):
        job.call("save", str(tmp_path / "full"))
