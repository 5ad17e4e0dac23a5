"""Law T3: kill anything, and the numbers come out the same.

The troubled run is the straight run with a death or a full disk in every iteration but the first, and with a checkpoint
that is damaged. `docs/faults.md` shows what was said.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors.numpy import load_file

if TYPE_CHECKING:
    from conftest import Life

pytestmark = pytest.mark.timeout(1800)  # the first test to ask for a run waits for all of it


def without_times(record: dict[str, float]) -> dict[str, float]:
    """The figures that are a function of the configuration."""
    return {name: value for name, value in record.items() if not name.startswith("time/") and name != "engine/restarts"}


def test_a_reward_that_raises_is_named_and_nothing_is_lost(troubled: Life) -> None:
    stage = troubled.stages["reward raises"]
    assert stage.code == 1
    assert "faults:reward" in stage.errors
    assert "the user's reward divides by zero" in stage.errors
    assert "Iteration 1 is saved" in stage.errors
    assert f"vime-train resume {troubled.root}" in stage.errors


def test_an_engine_that_is_killed_while_it_generates_is_restarted(troubled: Life) -> None:
    stage = troubled.stages["engine and trainer killed"]
    assert "restarting engine-0 (1)" in stage.errors
    assert "iteration 2/6" in stage.errors


def test_a_killed_trainer_ends_the_run_with_its_name_the_cause_and_what_to_do(troubled: Life) -> None:
    stage = troubled.stages["engine and trainer killed"]
    assert stage.code == 1
    assert "vime-train: trainer-1, asked to train iteration 3, died: its process is gone" in stage.errors
    assert f"The end of {troubled.root}/logs/trainer-1.log" in stage.errors
    assert f"vime-train resume {troubled.root}" in stage.errors
    assert "Traceback" not in stage.errors.partition("vime-train: trainer-1")[2]


def test_a_checkpoint_that_the_disk_has_no_room_for_is_told_and_the_one_before_it_stays(troubled: Life) -> None:
    """The weights fitted, the optimizer's state did not; the iteration was trained and is not reported saved."""
    errors = troubled.stages["disk full for the trainers"].errors
    assert re.search(
        r"vime-train: trainer-\d, asked to save a checkpoint to .*iteration-000003/trainer, failed:", errors
    )
    assert re.search(r"OSError: \[Errno 27\] File too large: '.*/trainer-0000\d\.safetensors'", errors)
    assert f"Iteration 2 is saved: go on with `vime-train resume {troubled.root}`." in errors


def test_a_file_that_the_driver_has_no_room_for_is_told(troubled: Life) -> None:
    errors = troubled.stages["disk full for the driver"].errors
    assert f"vime-train: [Errno 27] File too large: '{troubled.root}/plan.json': make room there" in errors
    assert "Iteration 2 is saved" in errors
    assert "Traceback" not in errors


def test_a_damaged_checkpoint_is_refused_before_anything_starts(troubled: Life) -> None:
    stage = troubled.stages["newest checkpoint damaged"]
    newest = troubled.root / "checkpoints" / "iteration-000005"
    assert f"vime-train: {newest}/trainer/trainer-00001.safetensors has " in stage.errors
    assert f"remove {newest} to go on from iteration 4, which is whole." in stage.errors
    assert len(stage.processes) <= 1


@pytest.mark.parametrize(
    ("stage", "code"),
    [
        ("disk full for the trainers", 1),
        ("disk full for the driver", 1),
        ("newest checkpoint damaged", 1),
        ("driver killed", -9),
        ("driver asked to end", 143),
        ("driver interrupted", 130),
        ("to the end", 0),
    ],
)
def test_each_way_to_end_has_its_exit_code(troubled: Life, stage: str, code: int) -> None:
    assert troubled.stages[stage].code == code


def test_the_output_is_the_report_and_nothing_else(straight: Life, troubled: Life) -> None:
    """Ray writes there what it thinks of a death; with us that goes to the error stream."""
    assert straight.stages["run"].output.split()[0] == "run"  # the name of the run, above its table
    assert all(not stage.output for name, stage in troubled.stages.items() if name != "to the end")


@pytest.mark.parametrize("stage", ["driver asked to end", "driver interrupted"])
def test_a_run_that_is_asked_to_end_says_how_to_go_on(troubled: Life, stage: str) -> None:
    assert f"vime-train resume {troubled.root}" in troubled.stages[stage].errors


def test_the_troubled_run_ends_in_the_numbers_of_the_straight_run(straight: Life, troubled: Life) -> None:
    expected, found = straight.metrics(), troubled.metrics()
    assert [record["step"] for record in found] == list(range(7))
    for one, other in zip(expected, found, strict=True):
        assert without_times(one).keys() == without_times(other).keys()
        for name, value in without_times(one).items():
            assert other[name] == value or math.isclose(other[name], value, rel_tol=1e-6), name


def test_the_troubled_run_ends_in_the_weights_of_the_straight_run(straight: Life, troubled: Life) -> None:
    expected = load_file(straight.root / "export" / "model.safetensors")
    found = load_file(troubled.root / "export" / "model.safetensors")
    assert expected.keys() == found.keys()
    for name, weight in expected.items():
        np.testing.assert_allclose(found[name], weight, rtol=0, atol=1e-6, err_msg=name)


def test_nothing_is_left_behind(troubled: Life, left: Callable[[Path, list[int]], list[str]]) -> None:
    """Not even by the driver that was killed: the next launch sweeps."""
    assert left(troubled.root, [stage.pid for stage in troubled.stages.values()]) == []
