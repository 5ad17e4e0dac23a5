"""Naming the sample and token where a value that counts is NaN or infinite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from ._packing import PackedMicroBatch


def check_finite(values: Float[Tensor, " local"], micro_batch: PackedMicroBatch, *, name: str = "values") -> None:
    """Raise ValueError at the first unmasked value that is not finite, naming its sample and token.

    It waits for the device: call it when a step's loss is not finite, not on every micro-batch. Masked values may be
    anything.

    Args:
        values: one number per local place.
        micro_batch: the micro-batch that they were computed on; its mask says what counts.
        name: what the values are, for the message.

    >>> from vime_cp import check_finite, pack_micro_batch
    >>> batch = pack_micro_batch([torch.tensor([5, 6, 7])], [2])
    >>> check_finite(torch.tensor([0.5, float("nan"), 0.0]), batch, name="log_probs")
    Traceback (most recent call last):
    ValueError: log_probs is nan at sample 0, response token 1 (token 2 of 3) on cp rank 0; 1 of 2 unmasked values ...
    """
    if values.shape != micro_batch.mask.shape:
        raise ValueError(
            f"check_finite: {name} has shape {tuple(values.shape)} but the micro-batch holds "
            f"{micro_batch.local_length} places on cp rank {micro_batch.cp.rank}: give one value per place, [local]"
        )
    counted = micro_batch.mask != 0
    wrong = (counted & ~torch.isfinite(values)).nonzero()[:, 0].tolist()
    if not wrong:
        return
    place = wrong[0]
    sample = int(micro_batch.sample_index[place])
    total, response = micro_batch.total_lengths[sample], micro_batch.response_lengths[sample]
    token = int(micro_batch.position_ids[0, place]) + 1
    raise ValueError(
        f"{name} is {values[place].item()} at sample {sample}, response token {token - (total - response)} "
        f"(token {token} of {total}) on cp rank {micro_batch.cp.rank}; {len(wrong)} of {int(counted.sum())} unmasked "
        f"values are not finite: look at what that token was computed from"
    )
