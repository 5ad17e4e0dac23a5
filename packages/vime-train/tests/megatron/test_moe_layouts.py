"""Law T1 for models with experts: DP, CP, TP, PP, VPP and EP give the same step; see `test_layouts`."""

from __future__ import annotations

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
DESCENT = {"lr": 100.0, "adam_eps": 1000.0, "clip_grad": 1e3}


@pytest.fixture(scope="module")
def outcomes() -> dict[bool, object]:
    return {}


@pytest.fixture
def one_step(start, run_config, plan_batches, read_weights, tiny_model, tmp_path):
    def run(layout, *, per_token=False, **sections):
        config = run_config(layout, optimizer=DESCENT, train={"calculate_per_token_loss": per_token}, **sections)
        job = start(config, tiny_model("qwen3_moe", mlp_only_layers=[1]))
        (report,) = job.train(plan_batches(config))
        job.call("export", str(tmp_path / "out"))
        return report, read_weights(tmp_path / "out")

    return run


@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_t1(layout, per_token, one_step, outcomes) -> None:
    if per_token not in outcomes:
        outcomes[per_token] = one_step({}, per_token=per_token)
    expected_report, expected = outcomes[per_token]
    report, weights = one_step(layout, per_token=per_token)
    for name, value in expected_report.items():
        assert report[name] == pytest.approx(value, rel=2e-5, abs=1e-6), name
    for name, tensor in expected.items():
        np.testing.assert_allclose(weights[name], tensor, rtol=0, atol=1e-5, err_msg=name)
