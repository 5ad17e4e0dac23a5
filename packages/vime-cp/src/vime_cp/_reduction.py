"""Reductions over the samples of a packed micro-batch: a fixed number of kernels however many samples it holds.

Laws
- Nothing at a masked position reaches a result or a gradient, be it NaN or infinite.
- No reduction waits for the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ._collectives import Gradient, all_reduce_sum
from ._context_parallel import ContextParallel

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Num
    from torch import Tensor


def weighted_sum(
    values: Float[Tensor, " local"],
    mask: Num[Tensor, " local"],
    weights: Float[Tensor, " samples"],
    sample_index: Int[Tensor, " local"],
) -> Float[Tensor, ""]:
    """This rank's partial sum ``sum_i w_i sum_t mask_it * value_it`` over one micro-batch.

    Added over micro-batches, DP and CP ranks, it is the step's loss (with `sample_weights` of the whole step).

    Args:
        values: one number per local position.
        mask: loss mask at the same positions.
        weights: weight of each sample of this micro-batch, in its order (the step's weights, indexed by its samples).
        sample_index: the sample that each position belongs to; -1 for padding.

    Returns:
        A scalar of ``values``' dtype, at least fp32, that always has ``values``' graph.

    Raises:
        ValueError: shapes or devices that do not match.

    >>> from vime_cp import pack_micro_batch, sample_weights, weighted_sum
    >>> batch = pack_micro_batch([torch.tensor([5, 6, 7])], [2])
    >>> weights = sample_weights("token_mean", [2])
    >>> weighted_sum(torch.tensor([3.0, 4.0, float("nan")]), batch.mask, weights, batch.sample_index)
    tensor(3.5000)
    """
    _check("weighted_sum", values, mask, sample_index)
    if weights.dim() != 1 or weights.device != values.device:
        raise ValueError(
            f"weighted_sum: weights has shape {tuple(weights.shape)} on {weights.device} but values is on "
            f"{values.device}: give one weight per sample of the micro-batch, [samples], on the same device"
        )
    dtype = torch.promote_types(values.dtype, torch.float32)
    factor = mask * torch.cat([weights, weights.new_zeros(1)])[sample_index]
    return (masked(values.to(dtype), mask) * factor.to(dtype)).sum()


def sample_sums(
    values: Float[Tensor, " local"],
    mask: Num[Tensor, " local"],
    sample_index: Int[Tensor, " local"],
    num_samples: int,
    *,
    cp: ContextParallel | None = None,
    gradient: Gradient = "partial",
) -> Float[Tensor, " samples"]:
    """Masked sum of ``values`` over every sample, over all CP ranks where ``cp`` is given.

    What sequence-level losses need: one collective of ``num_samples`` numbers, and `to_tokens` brings them back to
    the tokens.

    Args:
        values: one number per local position.
        mask: loss mask at the same positions.
        sample_index: the sample that each position belongs to; -1 for padding.
        num_samples: number of samples in the micro-batch.
        cp: sum over these ranks; None sums this rank's positions only.
        gradient: ``"partial"`` where each rank's loss is its share of the whole, ``"replicated"`` where all compute
            the same loss, ``"none"`` for no graph.

    >>> from vime_cp import sample_sums
    >>> sample_sums(torch.tensor([1.0, 2.0, 4.0]), torch.ones(3), torch.tensor([0, 1, 1]), 2)
    tensor([1., 6.])
    """
    _check("sample_sums", values, mask, sample_index)
    dtype = torch.promote_types(values.dtype, torch.float32)
    weighted = masked(values.to(dtype), mask) * mask.to(dtype)
    padding_last = torch.where(sample_index < 0, num_samples, sample_index)
    sums = weighted.new_zeros(num_samples + 1).index_add(0, padding_last, weighted)[:num_samples]
    return all_reduce_sum(sums, cp if cp is not None else ContextParallel(), gradient=gradient)


def masked(values: Tensor, mask: Tensor) -> Tensor:
    """``values`` where ``mask`` is not 0, elsewhere 0 with gradient 0; unlike in a product, 0 * inf does not occur."""
    return torch.where(mask != 0, values, 0)


def _check(where: str, values: Tensor, mask: Tensor, sample_index: Tensor) -> None:
    if values.dim() != 1 or values.shape != mask.shape or values.shape != sample_index.shape:
        raise ValueError(
            f"{where}: values has shape {tuple(values.shape)}, mask {tuple(mask.shape)}, sample_index "
            f"{tuple(sample_index.shape)}: give all three one entry per local position of the same packed micro-batch"
        )
    if values.device != mask.device or values.device != sample_index.device:
        raise ValueError(
            f"{where}: values is on {values.device}, mask on {mask.device}, sample_index on {sample_index.device}: "
            f"move them to one device"
        )
    if not values.is_floating_point():
        raise ValueError(f"{where}: values has dtype {values.dtype}: give floating-point values")
