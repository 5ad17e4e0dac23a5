"""A checkpoint continues bit for bit in its own layout, and with exact weights in any other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

LAYOUTS = [{}, {"dp": 2}, {"tp": 2}, {"cp": 2}, {"pp": 2, "vpp": 2}]


def assert_equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor, err_msg=name)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_the_step_after_a_load_is_the_step_that_would_have_followed(
    layout: dict[str, int],
    start: Callable[..., object],
    run_config: Callable[..., object],
    plan_batches: Callable[..., object],
    read_weights: Callable[..., object],
    tmp_path: Path,
) -> None:
    config = run_config(layout)
    batches = plan_batches(config, steps=[6, 6])
    job = start(config)
    job.train(batches)
    job.call("save", str(tmp_path / "checkpoint"))
    followed = job.train(batches)
    job.call("export", str(tmp_path / "followed"))

    resumed = start(config)  # new trainers, with the first weights and no optimizer state
    assert set(resumed.call("load", str(tmp_path / "checkpoint"))) == {"exact"}
    assert resumed.train(batches) == followed
    resumed.call("export", str(tmp_path / "resumed"))
    assert_equal(read_weights(tmp_path / "resumed"), read_weights(tmp_path / "followed"))


@pytest.mark.parametrize("other", [{}, {"cp": 2}, {"tp": 2, "pp": 2}], ids=str)
def test_another_layout_takes_the_weights_exactly(
    other: dict[str, int],
    start: Callable[..., object],
    run_config: Callable[..., object],
    plan_batches: Callable[..., object],
    read_weights: Callable[..., object],
    tmp_path: Path,
) -> None:
    config = run_config({"dp": 2})
    job = start(config)
    job.train(plan_batches(config))
    job.call("save", str(tmp_path / "checkpoint"))
    resumed = start(run_config(other))
    assert set(resumed.call("load", str(tmp_path / "checkpoint"))) == {"weights"}
    resumed.call("export", str(tmp_path / "out"))
    assert_equal(read_weights(tmp_path / "out"), read_weights(tmp_path / "checkpoint" / "weights"))


def test_optimizer_state_matters(
    start: Callable[..., object],
    run_config: Callable[..., object],
    plan_batches: Callable[..., object],
    read_weights: Callable[..., object],
    tmp_path: Path,
) -> None:
    """Weights alone do not give the next step: otherwise the test above would prove nothing about Adam's moments."""
    config = run_config({})
    batches = plan_batches(config)
    job = start(config)
    job.train(batches)
    job.call("save", str(tmp_path / "checkpoint"))
    job.train(batches)
    job.call("export", str(tmp_path / "followed"))
    fresh = start(config, tmp_path / "checkpoint" / "weights")
    fresh.train(batches)
    fresh.call("export", str(tmp_path / "fresh"))
    followed, without = read_weights(tmp_path / "followed"), read_weights(tmp_path / "fresh")
    assert max(np.abs(followed[name] - without[name]).max() for name in followed) > 1e-5


def test_counters_and_layout_are_readable_and_nothing_is_pickled(
    start: Callable[..., object], run_config: Callable[..., object], plan_batches: Callable[..., object], tmp_path: Path
) -> None:
    config = run_config({"dp": 2})
    job = start(config)
    job.train(plan_batches(config, steps=[4, 8]))
    job.call("save", str(tmp_path))
    record = json.loads((tmp_path / "trainer-00001.json").read_text())
    assert record["counters"] == {"steps": 2, "skipped": 0, "rollouts": 12}
    assert record["layout"]["dp"] == 2
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".json", ".safetensors"}


def test_a_directory_without_a_checkpoint_is_refused(
    start: Callable[..., object], run_config: Callable[..., object], tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "weights").symlink_to(tiny_model())
    with pytest.raises(
        Exception, match=r"trainer-00000\.json does not exist: give a directory that Trainer\.save wrote"
    ):
        start(run_config({})).call("load", str(tmp_path))
