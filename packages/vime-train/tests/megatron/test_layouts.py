"""Law T1: the same rollouts give the same updated weights in every DP x TP x PP x VPP x CP layout (fp32: 1e-5).

Most steps here are plain gradient descent without clipping, since Adam and clipping would hide a wrong scale;
Megatron's distributed optimizer knows Adam only, and Adam with a huge epsilon is gradient descent with the rate lr /
epsilon. Adam as it is has its own test with an epsilon above the gradients' rounding noise: below it, Adam's first step
turns any noise into a step of the learning rate, in every framework.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

LAYOUTS = {
    "dp2": {"dp": 2},
    "cp2": {"cp": 2},
    "tp2": {"tp": 2},
    "pp2": {"pp": 2},
    "pp2-vpp2": {"pp": 2, "vpp": 2},
    "dp2-cp2": {"dp": 2, "cp": 2},
}
MORE_LAYOUTS = {
    "tp2-cp2": {"tp": 2, "cp": 2},
    "tp2-pp2": {"tp": 2, "pp": 2},
    "pp2-cp2": {"pp": 2, "cp": 2},
    "dp2-pp2-vpp2": {"dp": 2, "pp": 2, "vpp": 2},
    "pp4": {"pp": 4},
    "cp4": {"cp": 4},
}
DESCENT = {"lr": 100.0, "adam_eps": 1000.0, "clip_grad": 1e3}
ADAM = {"lr": 3e-4, "adam_eps": 1e-6, "clip_grad": 1.0}
MODES = [("rollout_mean", False), ("rollout_mean", True), ("token_mean", False), ("token_mean", True)]


@pytest.fixture(scope="module")
def outcomes() -> dict[object, object]:
    """Results on one rank by mode, computed once."""
    return {}


@pytest.fixture
def one_step(
    start: Callable[..., object],
    run_config: Callable[..., object],
    plan_batches: Callable[..., object],
    read_weights: Callable[..., object],
    tmp_path: Path,
) -> Callable[..., object]:
    """Report and weights after one optimizer step on the saved batch."""

    def run(layout: dict[str, int], mode: tuple[str, bool], optimizer: object = DESCENT, **sections: object) -> object:
        config = run_config(
            layout,
            algorithm={"aggregation": mode[0]},
            train={"calculate_per_token_loss": mode[1]},
            optimizer=optimizer,
            **sections,
        )
        job = start(config)
        reports = job.train(plan_batches(config))
        job.call("export", str(tmp_path / "out"))
        return reports[0], read_weights(tmp_path / "out")

    return run


@pytest.fixture
def reference(one_step: Callable[..., object], outcomes: dict[object, object]) -> Callable[..., object]:
    def get(mode: tuple[str, bool], optimizer: dict[str, object] = DESCENT) -> object:
        key = (mode, optimizer["lr"])
        if key not in outcomes:
            outcomes[key] = one_step({}, mode, optimizer)
        return outcomes[key]

    return get


def assert_same_step(found: object, expected: object) -> None:
    """Loss, gradient norm (before clipping, hence with its scale) and every weight."""
    (report, weights), (wanted_report, wanted) = found, expected
    assert report.keys() == wanted_report.keys()
    for name, value in wanted_report.items():
        assert report[name] == pytest.approx(value, rel=2e-5, abs=1e-6), name
    assert weights.keys() == wanted.keys()
    for name, tensor in wanted.items():
        np.testing.assert_allclose(weights[name], tensor, rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_t1_one_step_is_the_same_in_every_layout(
    layout: str, mode: tuple[str, bool], one_step: Callable[..., object], reference: Callable[..., object]
) -> None:
    expected = reference(mode)
    assert_same_step(one_step(LAYOUTS[layout], mode), expected)


@pytest.mark.parametrize("layout", MORE_LAYOUTS)
def test_t1_holds_in_combined_layouts(
    layout: str, one_step: Callable[..., object], reference: Callable[..., object]
) -> None:
    expected = reference(MODES[0])
    assert_same_step(one_step(MORE_LAYOUTS[layout], MODES[0]), expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_t1_holds_for_adam_with_clipping(
    layout: str, one_step: Callable[..., object], reference: Callable[..., object]
) -> None:
    expected = reference(MODES[0], ADAM)
    assert expected[0]["grad_norm"] > 2, "the step must be clipped"
    assert_same_step(one_step(LAYOUTS[layout], MODES[0], ADAM), expected)


def test_t1_holds_with_padded_sequences_and_streams(
    one_step: Callable[..., object], reference: Callable[..., object]
) -> None:
    expected = reference(MODES[0])
    found = one_step(
        {"tp": 2, "cp": 2},
        MODES[0],
        DESCENT,
        batching={"sequence_align": 2, "pack_align": 8},
    )
    assert_same_step(found, expected)


def test_both_settings_of_megatrons_token_loss_give_the_same_step(reference: Callable[..., object]) -> None:
    assert_same_step(reference(("token_mean", True)), reference(("token_mean", False)))
    assert_same_step(reference(("rollout_mean", True)), reference(("rollout_mean", False)))


def test_the_step_moves_every_weight(
    reference: Callable[..., object], tiny_model: Callable[..., Path], read_weights: Callable[..., object]
) -> None:
    _, after = reference(MODES[0])
    before = read_weights(tiny_model())
    still = [name for name in before if np.abs(after[name] - before[name]).max() < 1e-5]
    assert not still


@pytest.mark.parametrize("per_token", [False, True])
def test_a_forgotten_factor_of_dp_shows(
    per_token: bool,
    start: Callable[..., object],
    run_config: Callable[..., object],
    plan_batches: Callable[..., object],
    reference: Callable[..., object],
) -> None:
    """Without it Megatron's average over DP halves the gradient, or its division by all tokens does."""
    right, _ = reference(("rollout_mean", per_token))
    config = run_config({"dp": 2}, train={"calculate_per_token_loss": per_token})
    job = start(config)
    job.call("break_scaling", target="rank")
    (report,) = job.train(plan_batches(config))
    assert report["grad_norm"] == pytest.approx(right["grad_norm"] / 2, rel=1e-4)


def test_aggregation_changes_the_step(reference: Callable[..., object]) -> None:
    """Otherwise the modes above would test one thing twice."""
    (by_rollout, _), (by_token, _) = reference(MODES[0]), reference(MODES[2])
    assert by_rollout["grad_norm"] != pytest.approx(by_token["grad_norm"], rel=1e-2)
