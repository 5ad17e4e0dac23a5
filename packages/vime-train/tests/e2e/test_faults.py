"""Law T3: kill anything, and the numbers come out the same.

The troubled run is the straight run with a death in every iteration but the first.
"""

from __future__ import annotations

import math
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
    assert "vime-train: trainer-1, asked to " in stage.errors
    assert "died: its process is gone" in stage.errors
    assert f"The end of {troubled.root}/logs/trainer-1.log" in stage.errors
    assert f"vime-train resume {troubled.root}" in stage.errors
    assert "Traceback" not in stage.errors.partition("vime-train: trainer-1")[2]


@pytest.mark.parametrize(
    ("stage", "code"),
    [("driver killed", -9), ("driver asked to end", 143), ("driver interrupted", 130), ("to the end", 0)],
)
def test_each_way_to_end_has_its_exit_code(troubled: Life, stage: str, code: int) -> None:
    assert troubled.stages[stage].code == code


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
