"""Every rank holds its part of the same plan, and the parts are the whole of it, or nothing runs."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from vime_train.megatron._groups import Groups
    from vime_train.rollout import RankBatch


class PlanMismatchError(RuntimeError):
    """Ranks were given parts of different plans, or not all parts of one."""


def check_same_plan(batch: RankBatch, groups: Groups) -> None:
    """Compare the plan's fingerprint and step sizes over all ranks, with one collective of 40 bytes per rank.

    The unmasked tokens of all parts are counted along: a plan for more data-parallel ranks than there are, or a part
    that was given to two of them, would train on other tokens than the step's weights were made for.

    Raises:
        PlanMismatchError: on every rank alike, naming the ranks that differ from rank 0, or both counts.
    """
    tokens = sum(int(mask.sum()) for mask in batch.loss_masks)
    mine = torch.tensor([*_digest(batch), tokens], device=groups.device)
    everyone = [torch.empty_like(mine) for _ in range(groups.layout.world_size)]
    dist.all_gather(everyone, mine)
    different = [rank for rank, digest in enumerate(everyone) if not torch.equal(digest[:-1], everyone[0][:-1])]
    if different:
        raise PlanMismatchError(
            f"check_same_plan: ranks {different} hold another plan than rank 0 (rank {groups.rank} holds fingerprint "
            f"{batch.fingerprint[:12]}, steps of {batch.schedule.num_microbatches} micro-batches): "
            f"give all ranks parts of one schedule"
        )
    layout = groups.layout
    held = sum(int(digest[-1]) for digest in everyone)
    needed = sum(batch.step_mask_sums) * layout.cp * layout.tp * layout.pp
    if held != needed:
        raise PlanMismatchError(
            f"check_same_plan: all ranks together hold {held} unmasked response tokens, the plan has {needed} for "
            f"dp={layout.dp} x cp={layout.cp} x tp={layout.tp} x pp={layout.pp}: it was made for another number of "
            "data-parallel ranks, or a part of it was given twice; plan for this layout, and give every rank its part"
        )


def _digest(batch: RankBatch) -> list[int]:
    plan = (batch.fingerprint, batch.schedule.num_microbatches, batch.schedule.global_batch_sizes)
    digest = sha256(repr(plan).encode()).digest()
    return [int.from_bytes(digest[start : start + 8], "big", signed=True) for start in range(0, 32, 8)]
