"""What a step reports, reduced over all ranks: the same numbers on every one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from vime_train.megatron._objectives import SAMPLE_LOSSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vime_train.megatron._groups import Groups

NAMES = ("loss", "weight", "tokens", "clip_fraction", "approx_kl")


def reduce_logs(logs: Sequence[dict[str, Any]], groups: Groups) -> dict[str, float]:
    """Add the logs of all micro-batches and ranks; means over tokens carry the step's weights."""
    sums = torch.zeros(len(NAMES), dtype=torch.float64, device=groups.device)
    if groups.tp_rank == 0:
        for log in logs:
            sums += torch.stack([log.get(name, sums.new_zeros(())).to(sums.dtype) for name in NAMES])
    dist.all_reduce(sums)
    loss, weight, tokens, clip, kl = sums.tolist()
    return {
        "loss": loss,
        "tokens": tokens,
        "clip_fraction": clip / weight if weight else 0.0,
        "approx_kl": kl / weight if weight else 0.0,
    }


def samples_with_bad_loss(logs: Sequence[dict[str, Any]], members: Sequence[tuple[int, ...]]) -> list[int]:
    """Members whose loss on this rank is NaN or infinite."""
    return [
        sample
        for log, micro_batch in zip(logs, members, strict=True)
        for sample, loss in zip(micro_batch, log[SAMPLE_LOSSES].tolist(), strict=True)
        if not abs(loss) < float("inf")
    ]
