"""Every rank holds a part of the same plan, or nothing runs."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from vime_train.megatron._groups import Groups
    from vime_train.rollout import RankBatch


class PlanMismatchError(RuntimeError):
    """Ranks were given parts of different plans."""


def check_same_plan(batch: RankBatch, groups: Groups) -> None:
    """Compare the plan's fingerprint and step sizes over all ranks, with one collective of 32 bytes per rank.

    Raises:
        PlanMismatchError: on every rank alike, naming the ranks that differ from rank 0.
    """
    mine = torch.tensor(_digest(batch), device=groups.device)
    everyone = [torch.empty_like(mine) for _ in range(groups.layout.world_size)]
    dist.all_gather(everyone, mine)
    different = [rank for rank, digest in enumerate(everyone) if not torch.equal(digest, everyone[0])]
    if different:
        raise PlanMismatchError(
            f"check_same_plan: ranks {different} hold another plan than rank 0 (rank {groups.rank} holds fingerprint "
            f"{batch.fingerprint[:12]}, steps of {batch.schedule.num_microbatches} micro-batches): "
            f"give all ranks parts of one schedule"
        )


def _digest(batch: RankBatch) -> list[int]:
    plan = (batch.fingerprint, batch.schedule.num_microbatches, batch.schedule.global_batch_sizes)
    digest = sha256(repr(plan).encode()).digest()
    return [int.from_bytes(digest[start : start + 8], "big", signed=True) for start in range(0, 32, 8)]
