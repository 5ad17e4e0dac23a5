"""Slow and obvious: layouts by enumeration, and the loss of a step by its definition, one token at a time, in fp64."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, replace

import torch

VOCAB, HIDDEN = 11, 5


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One training sample; the response is the last tokens, and the columns have one entry per response token."""

    tokens: torch.Tensor
    response_length: int
    mask: torch.Tensor
    advantages: torch.Tensor
    old_log_probs: torch.Tensor
    rollout_id: object
    prompt_id: object


def random_samples(seed: int, count: int, *, longest: int = 24, dtype: torch.dtype = torch.float64) -> list[Sample]:
    """Ragged samples: siblings, masks with holes, fully masked ones, empty responses and empty prompts among them."""
    rng, gen = random.Random(seed), torch.Generator().manual_seed(seed)
    samples = []
    for _ in range(count):
        total = rng.choice([1, 2, 3, rng.randint(1, longest), rng.randint(1, longest)])
        response = rng.choice([0, 1, total, rng.randint(0, total), rng.randint(0, total)])
        response = min(response, total)
        mask = (torch.rand(response, generator=gen) < rng.choice([0.0, 0.6, 1.0])).to(torch.int64)
        if response == total:
            mask[:1] = 0
        samples.append(
            Sample(
                tokens=torch.randint(0, VOCAB, (total,), generator=gen),
                response_length=response,
                mask=mask,
                advantages=torch.randn(response, generator=gen, dtype=dtype),
                old_log_probs=-2 - torch.rand(response, generator=gen, dtype=dtype),
                rollout_id=rng.randint(0, max(1, count // 2)),
                prompt_id=f"prompt {rng.randint(0, max(1, count // 3))}",
            )
        )
    return samples


def masked_out(sample: Sample) -> Sample:
    """The same sample with nothing to train on."""
    return replace(sample, mask=torch.zeros_like(sample.mask))


def parameters(seed: int = 0, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    """A model of two matrices: embedding and head."""
    gen = torch.Generator().manual_seed(seed)
    shapes = (VOCAB, HIDDEN), (HIDDEN, VOCAB)
    return [torch.randn(s, generator=gen, dtype=dtype).requires_grad_() for s in shapes]


def log_probs(
    params: list[torch.Tensor], tokens: torch.Tensor, positions: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    """Log-prob of each label under a toy model that sees a token and its position."""
    embedding, head = params
    wave = torch.cos(positions[:, None] / (1.0 + torch.arange(HIDDEN))).to(embedding.dtype)
    return torch.log_softmax((embedding[tokens] * wave) @ head, -1).gather(1, labels[:, None])[:, 0]


def token_loss(new: torch.Tensor, old: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
    """The clipped policy gradient of PPO with a quadratic penalty."""
    ratio = torch.exp(new - old)
    return -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage) + 0.1 * (new - old) ** 2


def response_log_probs(params: list[torch.Tensor], sample: Sample) -> torch.Tensor:
    """Log-prob of each response token of a whole sample; 0 for a first token without a prompt."""
    total = len(sample.tokens)
    new = log_probs(params, sample.tokens[:-1], torch.arange(total - 1), sample.tokens[1:])
    first = new.new_zeros(1)
    return torch.cat([first, new])[total - sample.response_length :]


def sample_loss(params: list[torch.Tensor], sample: Sample) -> torch.Tensor:
    """Sum of the unmasked token losses, added up one by one."""
    new = response_log_probs(params, sample)
    total = new.new_zeros(())
    for t in range(sample.response_length):
        if sample.mask[t]:
            total = total + token_loss(new[t], sample.old_log_probs[t], sample.advantages[t])
    return total


def objective(
    aggregation: str,
    samples: list[Sample],
    losses: list[torch.Tensor],
    *,
    count_masked: bool = False,
    constant: float | None = None,
) -> torch.Tensor:
    """J of a step by its definition, from each sample's sum of unmasked losses."""
    zero = torch.zeros((), dtype=losses[0].dtype)
    if aggregation == "constant":
        assert constant is not None
        return sum(losses, zero) / constant
    units: dict[object, list[int]] = defaultdict(list)
    for i, sample in enumerate(samples):
        name: object = {
            "rollout_mean": sample.rollout_id,
            "prompt_mean": sample.prompt_id,
            "sample_mean": i,
            "token_mean": "all",
        }[aggregation]
        units[name].append(i)
    total, number = zero, 0
    for members in units.values():
        tokens = sum(int(samples[i].mask.sum()) for i in members)
        if tokens:
            total = total + sum((losses[i] for i in members), zero) / tokens
        if tokens or (count_masked and aggregation != "token_mean"):
            number += 1
    return total / number if number else total


def held_positions(total: int, size: int, layout: str, align: int = 1) -> list[list[int]]:
    """Positions of one sample that each rank stores, by cutting the padded sample into pieces one after the other."""
    padded = total
    while padded % align:
        padded += 1
    if size == 1:
        return [list(range(padded))]
    pieces = 2 * size if layout == "zigzag" else size
    length = 0
    while pieces * length < padded or (layout == "zigzag" and length % align):
        length += 1
    cut = [list(range(k * length, (k + 1) * length)) for k in range(pieces)]
    if layout == "contiguous":
        return cut
    return [cut[rank] + cut[pieces - 1 - rank] for rank in range(size)]
