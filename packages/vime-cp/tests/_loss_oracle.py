"""Slow and obvious: every loss and advantage by its formula, for one whole sample or one token at a time, in fp64."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Columns = dict[str, torch.Tensor]

HIDDEN = 5


def hidden(params: list[torch.Tensor], tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """What a toy model knows at each position: the token and where it stands."""
    wave = torch.cos(positions[:, None] / (1.0 + torch.arange(HIDDEN))).to(params[0].dtype)
    return params[0][tokens] * wave


def logits(params: list[torch.Tensor], tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    return hidden(params, tokens, positions) @ params[1]


def values(params: list[torch.Tensor], tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    return hidden(params, tokens, positions).sum(-1)


def response_scores(params: list[torch.Tensor], tokens: torch.Tensor, response_length: int) -> Columns:
    """log-prob, entropy and value of every response token of a whole sample; 0 for a first token without a prompt."""
    before, positions = tokens[:-1], torch.arange(len(tokens) - 1)
    log_p = torch.log_softmax(logits(params, before, positions), -1)
    scores = {
        "new": log_p.gather(1, tokens[1:, None])[:, 0],
        "entropy": -(log_p.exp() * log_p).sum(-1),
        "values": values(params, before, positions),
    }
    return {name: torch.cat([x.new_zeros(1), x])[len(tokens) - response_length :] for name, x in scores.items()}


def ppo(c: Columns, low: float = 0.2, high: float = 0.2, dual: float | None = None) -> torch.Tensor:
    ratio = torch.exp(c["new"] - c["old"])
    loss = -torch.minimum(ratio * c["advantages"], torch.clamp(ratio, 1 - low, 1 + high) * c["advantages"])
    if dual is None:
        return loss
    return torch.where(c["advantages"] < 0, torch.minimum(loss, -dual * c["advantages"]), loss)


def cispo(c: Columns, high: float) -> torch.Tensor:
    weight = torch.exp(c["new"] - c["old"]).detach().clamp(max=1 + high)
    return -weight * c["advantages"] * c["new"]


def gspo(c: Columns, low: float, high: float) -> torch.Tensor:
    length = max(int(c["mask"].sum()), 1)
    mean = ((c["new"] - c["old"]) * c["mask"]).sum() / length
    ratio = torch.exp(mean)
    return -torch.minimum(ratio * c["advantages"], ratio.clamp(1 - low, 1 + high) * c["advantages"])


def kl(c: Columns, estimator: str) -> torch.Tensor:
    d = c["new"] - c["ref"]
    k3 = torch.exp(-d) - 1 + d
    return {"k1": d, "k2": d**2 / 2, "k3": k3, "low_variance": torch.clamp(k3, max=10)}[estimator]


def value(c: Columns, clip: float) -> torch.Tensor:
    near = c["old_values"] + torch.clamp(c["values"] - c["old_values"], -clip, clip)
    return torch.maximum((c["values"] - c["returns"]) ** 2, (near - c["returns"]) ** 2)


def importance(c: Columns, level: str, mode: str, low: float, high: float, veto: float) -> torch.Tensor:
    """Weights of one sample from its tokens' ratios."""
    log_ratio = c["old"] - c["rollout"]
    kept = [t for t in range(len(log_ratio)) if c["mask"][t]]
    if any(math.exp(log_ratio[t]) < veto for t in kept):
        return torch.zeros_like(log_ratio)
    whole = sum(float(log_ratio[t]) for t in kept)
    if level == "geometric":
        whole /= max(len(kept), 1)
    weights = torch.exp(log_ratio) if level == "token" else torch.full_like(log_ratio, math.exp(whole))
    if mode == "truncate":
        return weights.clamp(low, high)
    return torch.where((weights >= low) & (weights <= high), weights, 0)


def left_out(c: Columns, delta: float) -> bool:
    """Whether a failed sequence is one that the policy has moved away from."""
    kept = [t for t in range(len(c["old"])) if c["mask"][t]]
    if not kept:
        return False
    moved = sum(float(c["old"][t] - c["new"][t].detach()) for t in kept) / len(kept)
    return sum(float(c["advantages"][t]) for t in kept) < 0 and moved > delta


LOSSES: dict[str, Callable[[Columns], torch.Tensor]] = {
    "ppo": ppo,
    "ppo, clip-higher and dual clip": lambda c: ppo(c, 0.1, 0.3, 1.5),
    "cispo": lambda c: cispo(c, 0.3),
    "gspo": lambda c: gspo(c, 0.1, 0.15),
    "kl k1": lambda c: kl(c, "k1"),
    "kl k2": lambda c: kl(c, "k2"),
    "kl k3": lambda c: kl(c, "k3"),
    "kl low variance": lambda c: kl(c, "low_variance"),
    "kl unbiased": lambda c: torch.exp(c["new"] - c["old"]) * kl(c, "k3"),
    "entropy": lambda c: -0.3 * c["entropy"],
    "value": lambda c: value(c, 0.2),
    "value, no clip": lambda c: (c["values"] - c["returns"]) ** 2,
    "sft": lambda c: -c["new"],
    "distillation": lambda c: torch.exp(c["new"] - c["old"]) * (c["new"] - c["ref"]).detach(),
    "ppo, off-policy sequences masked": lambda c: ppo(c) * (0.0 if left_out(c, 0.02) else 1.0),
    "ppo with tis": lambda c: ppo(c) * importance(c, "token", "truncate", 0.0, 1.1, 0.0),
    "ppo with icepop": lambda c: ppo(c) * importance(c, "token", "mask", 0.8, 1.2, 0.0),
    "ppo with sequence mis": lambda c: ppo(c) * importance(c, "sequence", "mask", 0.5, 2.0, 0.75),
    "ppo with geometric mis": lambda c: ppo(c) * importance(c, "geometric", "truncate", 0.97, 1.03, 0.0),
}


def returns(rewards: Sequence[float], gamma: float, mask: Sequence[int]) -> list[float]:
    """Discounted return at every unmasked step, by a loop from the end; 0 at masked steps."""
    result, later = [0.0] * len(rewards), 0.0
    for t in reversed(range(len(rewards))):
        if mask[t]:
            later = rewards[t] + gamma * later
            result[t] = later
    return result


def gae(
    rewards: Sequence[float], values: Sequence[float], gamma: float, lam: float, mask: Sequence[int]
) -> tuple[list[float], list[float]]:
    """Advantage and return at every unmasked step, by a loop from the end; 0 at masked steps."""
    advantages, targets = [0.0] * len(rewards), [0.0] * len(rewards)
    advantage, next_value = 0.0, 0.0
    for t in reversed(range(len(rewards))):
        if mask[t]:
            advantage = rewards[t] + gamma * next_value - values[t] + gamma * lam * advantage
            next_value = values[t]
            advantages[t], targets[t] = advantage, advantage + values[t]
    return advantages, targets


def token_rewards(kl_values: Sequence[float], kl_coef: float, mask: Sequence[int], reward: float) -> list[float]:
    """KL penalty at every unmasked token, and the reward at the last of them."""
    rewards = [-kl_coef * k if m else 0.0 for k, m in zip(kl_values, mask, strict=True)]
    kept = [t for t, m in enumerate(mask) if m]
    if kept:
        rewards[kept[-1]] += reward
    return rewards
