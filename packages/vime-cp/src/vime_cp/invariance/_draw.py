"""Random samples, their columns, and random splits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from ._case import SampleSpec, Split

if TYPE_CHECKING:
    import random

    from torch import Tensor

LAYOUTS = ("zigzag", "contiguous")


def draw_samples(rng: random.Random, count: int) -> tuple[SampleSpec, ...]:
    """Ragged samples, siblings among them; at least one token of each is unmasked."""
    samples = []
    for _ in range(count):
        length = rng.choice([1, 2, rng.randint(1, 12), rng.randint(1, 12)])
        density = rng.choice([1.0, 1.0, 0.6])
        mask = [int(rng.random() < density) for _ in range(length)]
        mask[rng.randrange(length)] = 1
        rollout = rng.randrange(max(1, count - 1))
        samples.append(
            SampleSpec(prompt=rng.randint(1, 6), mask=tuple(mask), rollout=rollout, seed=rng.getrandbits(32))
        )
    return tuple(samples)


def draw_split(rng: random.Random, count: int, *, micro_batches: int = 1, dp: int = 1, cp: int = 1) -> Split:
    """Samples dealt at random, in order within a micro-batch; none is empty as long as there are enough samples."""
    order = rng.sample(range(count), count)
    bins: list[list[int]] = [[] for _ in range(dp * micro_batches)]
    for place, sample in enumerate(order):
        bins[place if place < len(bins) else rng.randrange(len(bins))].append(sample)
    cut = [tuple(sorted(members)) for members in bins]
    ranks = [tuple(cut[rank * micro_batches : (rank + 1) * micro_batches]) for rank in range(dp)]
    return Split(ranks=tuple(ranks), cp=cp, layout="zigzag" if cp == 1 or rng.random() < 0.5 else "contiguous")


def draw_columns(sample: SampleSpec) -> dict[str, Tensor]:
    """Columns of a sample's response, each ``[response]`` in fp64; the same for the same spec."""
    gen = torch.Generator().manual_seed(sample.seed)
    # Drawn token by token, so that a sample that was shortened keeps the values of its first tokens.
    noise = torch.randn(max(len(sample.mask), 1), 9, generator=gen, dtype=torch.float64)[: len(sample.mask)].T
    log_probs = -0.1 - noise[0].abs()
    old = log_probs + 0.2 * noise[1]
    values = noise[2]
    advantage = torch.randn((), generator=gen.manual_seed(sample.seed + 1), dtype=torch.float64)
    return {
        "log_probs": log_probs,
        "entropy": noise[3].abs(),
        "values": values,
        "old_log_probs": old,
        "ref_log_probs": log_probs + 0.5 * noise[4],
        "rollout_log_probs": old + 0.1 * noise[5],
        "advantages": advantage.expand(len(sample.mask)),
        "returns": noise[6],
        "old_values": values + 0.3 * noise[7],
    }


def poisoned(column: Tensor, mask: Tensor) -> Tensor:
    """The column with NaN at masked positions; a gradient that is NaN there still passes, and is seen."""
    return column + torch.where(mask != 0, 0.0, math.nan)
