"""What every per-token function asks of its arguments, told before any collective so that no rank is left waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def check_tokens(where: str, *, mask: Tensor | None = None, **per_token: Tensor | None) -> None:
    """Raise ValueError unless all tensors are floating ``[local]`` of one length, dtype and device, and the mask fits.

    The first tensor given sets length, dtype and device; None stands for an argument that was left out.
    """
    given = {name: tensor for name, tensor in per_token.items() if tensor is not None}
    first, reference = next(iter(given.items()))
    if reference.dim() != 1 or not reference.is_floating_point():
        raise ValueError(
            f"{where}: {first} has shape {tuple(reference.shape)} and dtype {reference.dtype}: "
            f"give floating-point [local], one value per local position of the packed micro-batch"
        )
    for name, tensor in given.items():
        _check_alike(where, name, tensor, first, reference)
        if tensor.dtype != reference.dtype:
            raise ValueError(
                f"{where}: {name} is {tensor.dtype} but {first} is {reference.dtype}: "
                f"convert one of them, such as {name}.to({reference.dtype})"
            )
    if mask is not None:
        _check_alike(where, "mask", mask, first, reference)


def check_sample_index(where: str, sample_index: Tensor, first: str, reference: Tensor) -> None:
    """Raise ValueError unless there is one integer per local position."""
    _check_alike(where, "sample_index", sample_index, first, reference)
    if sample_index.is_floating_point() or sample_index.dtype == torch.bool:
        raise ValueError(f"{where}: sample_index is {sample_index.dtype}: give integers, -1 for padding")


def _check_alike(where: str, name: str, tensor: Tensor, first: str, reference: Tensor) -> None:
    if tensor.shape != reference.shape:
        raise ValueError(
            f"{where}: {name} has shape {tuple(tensor.shape)} but {first} has {tuple(reference.shape)}: "
            f"give one value per local position; under CP cut both alike (pack_response)"
        )
    if tensor.device != reference.device:
        raise ValueError(f"{where}: {name} is on {tensor.device} but {first} on {reference.device}: move them together")


def check_at_least(where: str, name: str, value: float, least: float, *, above: bool = False) -> None:
    """Raise ValueError unless ``value >= least`` (``>`` with ``above``); NaN never passes."""
    if not (value > least if above else value >= least):
        raise ValueError(f"{where}: {name} is {value}: give a number {'above' if above else 'of at least'} {least}")


def keep_unmasked(x: Tensor, mask: Tensor | None) -> Tensor:
    """``x``, and 0 at masked positions: no value passes forward there and no gradient passes back, not even NaN."""
    return x if mask is None else torch.where(mask != 0, x, 0)
