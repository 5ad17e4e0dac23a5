"""One optimizer step against transformers and the formulas written out, in fp64, one sample at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

LR, EPSILON = 100.0, 1000.0


@pytest.mark.parametrize("aggregation", ["rollout_mean", "token_mean"])
@pytest.mark.parametrize("layout", [{}, {"dp": 2, "cp": 2}], ids=str)
def test_a_step_is_that_of_transformers_and_the_formulas(
    layout: dict[str, int],
    aggregation: str,
    start: Callable[..., object],
    run_config: Callable[..., object],
    plan_batches: Callable[..., object],
    rollouts: object,
    oracle_loss: Callable[..., torch.Tensor],
    tiny_model: Callable[..., Path],
    read_weights: Callable[..., object],
    tmp_path: Path,
) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_model()).double()
    loss = oracle_loss(model, rollouts, aggregation)
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    norm = float(torch.stack([gradient.norm() for gradient in gradients.values()]).norm())

    config = run_config(
        layout,
        algorithm={"aggregation": aggregation},
        optimizer={"lr": LR, "adam_eps": EPSILON, "clip_grad": 1e3},
    )
    job = start(config)
    (report,) = job.train(plan_batches(config))
    job.call("export", str(tmp_path / "out"))

    assert report["loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    assert report["grad_norm"] == pytest.approx(norm, rel=1e-5)
    before, after = read_weights(tiny_model()), read_weights(tmp_path / "out")
    for name, gradient in gradients.items():
        expected = before[name] - (LR * gradient / (gradient.abs() + EPSILON)).numpy()
        np.testing.assert_allclose(after[name], expected, atol=1e-5, err_msg=name)
