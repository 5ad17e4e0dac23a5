"""Law T1 for models with experts: the same step in every DP x CP x TP x PP x VPP x EP layout; see `test_layouts`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

LAYOUTS = [
    {"dp": 2},
    {"cp": 2},
    {"tp": 2},
    {"pp": 2},
    {"pp": 2, "vpp": 2},
    {"dp": 2, "ep": 2},
    {"cp": 2, "ep": 2},
    {"tp": 2, "ep": 2},
    {"dp": 2, "cp": 2, "ep": 4},
    {"dp": 2, "tp": 2, "ep": 2},
    {"dp": 2, "pp": 2, "ep": 2},
]
PER_TOKEN = [{"tp": 2}, {"pp": 2, "vpp": 2}, {"dp": 2, "cp": 2, "ep": 4}]
SHARING = [{"cp": 2}, {"tp": 2, "cp": 2, "ep": 4}]
DESCENT = {"lr": 100.0, "adam_eps": 1000.0, "clip_grad": 1e3}
Step = tuple[dict[str, float], dict[str, np.ndarray]]


@pytest.fixture(scope="module")
def on_one_rank() -> dict[object, Step]:
    """Steps on one rank, computed once."""
    return {}


@pytest.fixture
def check(
    start: Callable[..., Any],
    run_config: Callable[..., Any],
    plan_batches: Callable[..., Any],
    read_weights: Callable[..., Any],
    tiny_model: Callable[..., Path],
    tmp_path: Path,
    on_one_rank: dict[object, Step],
) -> Callable[..., Step]:
    """Compare the step of a layout with that of one rank: loss, gradient norm and every weight."""

    def step(layout: dict[str, int], train: dict[str, object], plan: dict[str, object]) -> Step:
        config = run_config(layout, optimizer=DESCENT, train=train)
        job = start(config, tiny_model("qwen3_moe", mlp_only_layers=[1]))
        (report,) = job.train(plan_batches(config, **plan))
        job.call("export", str(tmp_path / "out"))
        return report, read_weights(tmp_path / "out")

    def compare(layout: dict[str, int], train: dict[str, object], **plan: object) -> Step:
        if str(train) not in on_one_rank:
            on_one_rank[str(train)] = step({}, train, plan)
        wanted_report, wanted = on_one_rank[str(train)]
        report, weights = step(layout, train, plan)
        assert report.keys() == wanted_report.keys()
        for name, value in wanted_report.items():
            assert report[name] == pytest.approx(value, rel=2e-5, abs=1e-6), name
        for name, tensor in wanted.items():
            np.testing.assert_allclose(weights[name], tensor, rtol=0, atol=1e-5, err_msg=name)
        return wanted_report, wanted

    return compare


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_t1_holds_for_experts(
    layout: dict[str, int],
    check: Callable[..., Step],
    tiny_model: Callable[..., Path],
    read_weights: Callable[..., Any],
) -> None:
    _, after = check(layout, {})
    before = read_weights(tiny_model("qwen3_moe", mlp_only_layers=[1]))
    still = [name for name in before if np.abs(after[name] - before[name]).max() < 1e-5]
    assert not still, "the step moves every expert"


@pytest.mark.parametrize("layout", PER_TOKEN, ids=str)
def test_t1_holds_for_experts_with_megatrons_token_loss(layout: dict[str, int], check: Callable[..., Step]) -> None:
    check(layout, {"calculate_per_token_loss": True})


@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("layout", SHARING, ids=str)
def test_ranks_that_share_a_micro_batch_share_its_auxiliary_loss(
    layout: dict[str, int], per_token: bool, check: Callable[..., Step], rollouts: Any
) -> None:
    """All samples in one micro-batch, of lengths that no layout pads: then T1 holds with the auxiliary loss too."""
    whole = [
        replace(
            rollout,
            samples=tuple(
                replace(sample, tokens=(2,) * (-len(sample.tokens) % 4) + sample.tokens) for sample in rollout.samples
            ),
        )
        for rollout in rollouts
    ]
    train = {"calculate_per_token_loss": per_token, "router_aux_loss_coefficient": 0.5}
    check(layout, train, only=whole, budget=1000)


def test_t1_holds_where_a_pipeline_stage_has_no_experts(
    start: Callable[..., Any],
    run_config: Callable[..., Any],
    plan_batches: Callable[..., Any],
    tiny_model: Callable[..., Path],
    read_weights: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """Its ranks have no optimizer of experts, and take part in the norm of their gradients."""
    norms, weights = [], []
    for layout in ({}, {"pp": 2, "dp": 2, "ep": 2}):
        config = run_config(layout, optimizer=DESCENT)
        job = start(config, tiny_model("qwen3_moe", mlp_only_layers=[0, 1]))
        norms.append(job.train(plan_batches(config))[0]["grad_norm"])
        job.call("export", str(tmp_path / "out"))
        weights.append(read_weights(tmp_path / "out"))
    assert norms[1] == pytest.approx(norms[0], rel=2e-5)
    for name, tensor in weights[0].items():
        np.testing.assert_allclose(weights[1][name], tensor, rtol=0, atol=1e-5, err_msg=name)
