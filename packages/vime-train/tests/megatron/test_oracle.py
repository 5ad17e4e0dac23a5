"""One optimizer step against transformers and the formulas written out, in fp64, one sample at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

LR, EPSILON = 100.0, 1000.0


def group_advantages(rollouts: object) -> dict[int, float]:
    """GRPO: reward minus the group's mean, over its unbiased standard deviation."""
    found = {}
    for group in {rollout.group_id for rollout in rollouts}:
        members = [rollout for rollout in rollouts if rollout.group_id == group]
        rewards = np.array([rollout.reward for rollout in members])
        for rollout in members:
            found[rollout.rollout_id] = (rollout.reward - rewards.mean()) / (rewards.std(ddof=1) + 1e-6)
    return found


def sample_weight(rollout: object, rollouts: object, aggregation: str) -> float:
    tokens = {r.rollout_id: sum(sum(s.loss_mask) for s in r.samples) for r in rollouts}
    if aggregation == "token_mean":
        return 1 / sum(tokens.values())
    counted = sum(count > 0 for count in tokens.values())
    return 1 / (counted * tokens[rollout.rollout_id]) if tokens[rollout.rollout_id] else 0.0


def loss_of(model: torch.nn.Module, rollouts: object, aggregation: str) -> torch.Tensor:
    advantages = group_advantages(rollouts)
    total = torch.zeros((), dtype=torch.float64)
    for rollout in rollouts:
        for sample in rollout.samples:
            ids = torch.tensor(sample.tokens)[None]
            scores = model(ids).logits[0].log_softmax(-1)[:-1].gather(1, ids[0, 1:, None])[-sample.response_length :, 0]
            ratio = (scores - torch.tensor(sample.rollout_log_probs)).exp()
            advantage = advantages[rollout.rollout_id]
            surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage)
            weight = sample_weight(rollout, rollouts, aggregation)
            total = total - weight * (surrogate * torch.tensor(sample.loss_mask)).sum()
    return total


@pytest.mark.parametrize("aggregation", ["rollout_mean", "token_mean"])
@pytest.mark.parametrize("layout", [{}, {"dp": 2, "cp": 2}], ids=str)
def test_a_step_is_that_of_transformers_and_the_formulas(
    layout: dict[str, int],
    aggregation: str,
    start: Callable[..., object],
    run_config: Callable[..., object],
    plan_batches: Callable[..., object],
    rollouts: object,
    tiny_model: Callable[..., Path],
    read_weights: Callable[..., object],
    tmp_path: Path,
) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_model()).double()
    loss = loss_of(model, rollouts, aggregation)
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
