"""The loss of the saved batch by the formulas written out, with a model of transformers: the oracle of a step."""

from __future__ import annotations

import numpy as np
import torch


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
