"""The formulas of every algorithm, written out in fp64 for whole responses, one sample at a time: the tests' oracle.

Nothing here comes from `vime_cp`. A case turns the saved batch into the loss of every token; `expected` sums them up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Scored:
    """One sample: `scores` and `entropy` carry the policy's graph, everything else is data."""

    rollout_id: int
    group_id: int
    reward: float
    mask: Tensor
    engine: Tensor
    scores: Tensor
    entropy: Tensor
    reference: Tensor

    @property
    def own(self) -> Tensor:
        return self.scores.detach()


Column = list[Tensor]
Loss = Callable[[Sequence[Scored]], Column]


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is configured, and the loss of every token of every sample that it must give."""

    section: dict[str, object]
    loss: Loss
    weights: Callable[[Sequence[Scored]], list[float]] = field(default=lambda samples: rollout_mean(samples))


def rollout_mean(samples: Sequence[Scored]) -> list[float]:
    tokens: dict[int, float] = {}
    for sample in samples:
        tokens[sample.rollout_id] = tokens.get(sample.rollout_id, 0.0) + float(sample.mask.sum())
    counted = sum(count > 0 for count in tokens.values())
    return [1 / (counted * tokens[s.rollout_id]) if tokens[s.rollout_id] else 0.0 for s in samples]


def expected(case: Case, samples: Sequence[Scored]) -> Tensor:
    """J = sum over samples of weight * sum over tokens of mask * loss."""
    losses = case.loss(samples)
    weighted = zip(case.weights(samples), samples, losses, strict=True)
    return torch.stack([weight * (sample.mask * loss).sum() for weight, sample, loss in weighted]).sum()


def group(samples: Sequence[Scored], kind: str) -> Column:
    """GRPO, Dr.GRPO or RLOO: one number for all tokens of a rollout."""
    rewards = {sample.rollout_id: (sample.group_id, sample.reward) for sample in samples}
    found = []
    for sample in samples:
        peers = np.array([reward for group_id, reward in rewards.values() if group_id == sample.group_id])
        value = sample.reward - peers.mean()
        if kind == "grpo":
            value /= peers.std(ddof=1) + 1e-6
        if kind == "rloo":
            value *= len(peers) / (len(peers) - 1)
        found.append(torch.full_like(sample.mask, value))
    return found


def discounted(samples: Sequence[Scored], penalties: Column, factor: float) -> Column:
    """Discounted sums of -penalty and the reward at the last unmasked token, passing over masked tokens."""
    found = []
    for sample, penalty in zip(samples, penalties, strict=True):
        result = torch.zeros_like(sample.mask)
        places = sample.mask.nonzero().flatten().tolist()
        total = 0.0
        for place in reversed(places):
            reward = sample.reward if place == places[-1] else 0.0
            total = reward - float(penalty[place]) + factor * total
            result[place] = total
        found.append(result)
    return found


def no_penalty(samples: Sequence[Scored]) -> Column:
    return [torch.zeros_like(sample.mask) for sample in samples]


def whitened(samples: Sequence[Scored], column: Column) -> Column:
    kept = torch.cat([values[sample.mask != 0] for sample, values in zip(samples, column, strict=True)])
    return [(values - kept.mean()) / (kept.var() + 1e-8).sqrt() for values in column]


def clipped(
    samples: Sequence[Scored],
    advantages: Column,
    low: float = 0.2,
    high: float = 0.28,
    *,
    recomputed: bool = False,
    dual: float | None = None,
    sequence: bool = False,
) -> Column:
    """PPO's surrogate, of tokens or of sequences."""
    found = []
    for sample, advantage in zip(samples, advantages, strict=True):
        log_ratio = sample.scores - (sample.own if recomputed else sample.engine)
        if sequence:
            log_ratio = ((sample.mask * log_ratio).sum() / sample.mask.sum().clamp_min(1)).expand_as(log_ratio)
        ratio = log_ratio.exp()
        loss = torch.maximum(-ratio * advantage, -ratio.clamp(1 - low, 1 + high) * advantage)
        if dual is not None:
            loss = torch.where(advantage < 0, torch.minimum(loss, -dual * advantage), loss)
        found.append(loss)
    return found


def times(column: Column, factors: Column) -> Column:
    return [values * factor for values, factor in zip(column, factors, strict=True)]


def plus(column: Column, other: Column) -> Column:
    return [values + more for values, more in zip(column, other, strict=True)]


def mismatch(samples: Sequence[Scored]) -> Column:
    """Probability under the trainer over that under the engine."""
    return [(sample.own - sample.engine).exp() for sample in samples]


def k1(sample: Scored, log_probs: Tensor) -> Tensor:
    return log_probs - sample.reference


def k2(sample: Scored, log_probs: Tensor) -> Tensor:
    return k1(sample, log_probs).square() / 2


def k3(sample: Scored, log_probs: Tensor) -> Tensor:
    d = k1(sample, log_probs)
    return (-d).exp() - 1 + d


def plain(samples: Sequence[Scored]) -> Column:
    """The loss of GRPO with recomputed log-probs, to which cases add their own."""
    return clipped(samples, group(samples, "grpo"), recomputed=True)


def reinforce(samples: Sequence[Scored]) -> Column:
    penalties = [0.05 * k1(sample, sample.own) for sample in samples]
    return clipped(samples, whitened(samples, discounted(samples, penalties, 0.9)), recomputed=True)


def baseline(samples: Sequence[Scored]) -> Column:
    penalties = [-0.05 * k3(sample, sample.engine) for sample in samples]
    return clipped(samples, whitened(samples, plus(group(samples, "dr_grpo"), penalties)))


def ppo(samples: Sequence[Scored]) -> Column:
    """The critic's head begins with zeros, so that GAE is a discounted sum with gamma * lambda."""
    return clipped(samples, whitened(samples, discounted(samples, no_penalty(samples), 0.9 * 0.8)))


def cispo(samples: Sequence[Scored]) -> Column:
    advantages = group(samples, "grpo")
    return [
        -(sample.own - sample.engine).exp().clamp(max=3.0) * advantage * sample.scores
        for sample, advantage in zip(samples, advantages, strict=True)
    ]


def sequence_mis(samples: Sequence[Scored]) -> Column:
    """Geometric mean of a sequence's ratios within [0.4, 3], and no token's own ratio below the veto."""
    factors = []
    for sample in samples:
        log_ratio = (sample.own - sample.engine)[sample.mask != 0]
        ratio = float(log_ratio.mean().exp()) if len(log_ratio) else 1.0
        vetoed = bool((log_ratio.exp() < 0.05).any())
        factors.append(torch.full_like(sample.mask, 0.0 if vetoed or not 0.4 <= ratio <= 3 else ratio))
    return times(plain(samples), factors)


def off_policy(samples: Sequence[Scored]) -> Column:
    factors = []
    for sample in samples:
        count = sample.mask.sum().clamp_min(1)
        divergence = float((sample.mask * (sample.engine - sample.own)).sum() / count)
        advantage = float(group(samples, "grpo")[list(samples).index(sample)][0])
        factors.append(torch.full_like(sample.mask, float(not (advantage < 0 and divergence > 0.6))))
    return times(clipped(samples, group(samples, "grpo")), factors)


def distilled(samples: Sequence[Scored]) -> Column:
    return clipped(samples, [2.0 * (sample.reference - sample.own) for sample in samples], recomputed=True)


def kl_in_loss(samples: Sequence[Scored]) -> Column:
    return plus(plain(samples), [0.3 * k3(sample, sample.scores) for sample in samples])


def unbiased_kl(samples: Sequence[Scored]) -> Column:
    ratios = [(sample.scores - sample.own).exp() for sample in samples]
    penalties = [0.3 * k2(sample, sample.scores) for sample in samples]
    return plus(plain(samples), times(penalties, ratios))


RECOMPUTE = {"old_log_probs": "recompute"}
CASES = {
    "grpo-recompute": Case(section=RECOMPUTE, loss=plain),
    "rloo": Case(section={"advantage": "rloo"}, loss=lambda s: clipped(s, group(s, "rloo"))),
    "dr_grpo-constant": Case(
        section={"advantage": "dr_grpo", "aggregation": "constant", "constant_tokens": 50},
        loss=lambda s: clipped(s, group(s, "dr_grpo")),
        weights=lambda s: [1 / (50 * len({one.rollout_id for one in s}))] * len(s),
    ),
    "grpo-whitened": Case(section={"whiten": True}, loss=lambda s: clipped(s, whitened(s, group(s, "grpo")))),
    "ppo-clip": Case(section={"clip_high": 0.2}, loss=lambda s: clipped(s, group(s, "grpo"), 0.2, 0.2)),
    "dual-clip": Case(section={"dual_clip": 1.5}, loss=lambda s: clipped(s, group(s, "grpo"), dual=1.5)),
    "gspo": Case(
        section={"loss": "gspo", "clip_low": 0.4, "clip_high": 0.5},
        loss=lambda s: clipped(s, group(s, "grpo"), 0.4, 0.5, sequence=True),
    ),
    "cispo": Case(section={"loss": "cispo", "clip_high": 2.0}, loss=cispo),
    "sft": Case(section={"loss": "sft", "advantage": "none"}, loss=lambda s: [-one.scores for one in s]),
    "reinforce_plus_plus": Case(
        section={
            "advantage": "reinforce_plus_plus",
            "gamma": 0.9,
            "kl": {"coefficient": 0.05, "placement": "reward", "estimator": "k1"},
            **RECOMPUTE,
        },
        loss=reinforce,
    ),
    "reinforce_plus_plus_baseline": Case(
        section={
            "advantage": "reinforce_plus_plus_baseline",
            "kl": {"coefficient": 0.05, "placement": "reward"},
        },
        loss=baseline,
    ),
    "ppo": Case(section={"advantage": "gae", "gamma": 0.9, "lam": 0.8}, loss=ppo),
    "kl-in-loss": Case(section={"kl": {"coefficient": 0.3}, **RECOMPUTE}, loss=kl_in_loss),
    "kl-unbiased": Case(
        section={"kl": {"coefficient": 0.3, "estimator": "k2", "unbiased": True}, **RECOMPUTE}, loss=unbiased_kl
    ),
    "kl-low-variance": Case(
        section={"kl": {"coefficient": 0.3, "estimator": "low_variance"}, **RECOMPUTE},
        loss=lambda s: plus(plain(s), [0.3 * k3(one, one.scores).clamp(max=10) for one in s]),
    ),
    "entropy": Case(
        section={"entropy_coefficient": 0.2, **RECOMPUTE},
        loss=lambda s: plus(plain(s), [-0.2 * one.entropy for one in s]),
    ),
    "tis": Case(
        section={"correction": {"kind": "tis", "high": 1.5}, **RECOMPUTE},
        loss=lambda s: times(plain(s), [ratio.clamp(0, 1.5) for ratio in mismatch(s)]),
    ),
    "icepop": Case(
        section={"correction": {"kind": "icepop"}, **RECOMPUTE},
        loss=lambda s: times(plain(s), [r * ((r >= 0.5) & (r <= 5)) for r in mismatch(s)]),
    ),
    "mis": Case(
        section={
            "correction": {"kind": "mis", "level": "geometric", "low": 0.4, "high": 3.0, "veto": 0.05},
            **RECOMPUTE,
        },
        loss=sequence_mis,
    ),
    "off-policy-mask": Case(section={"off_policy_delta": 0.6}, loss=off_policy),
    "distillation": Case(
        section={"advantage": "none", "distillation": {"coefficient": 2.0}, **RECOMPUTE}, loss=distilled
    ),
}
"""`kl.reference` and `distillation.teacher` are filled in by the test."""
