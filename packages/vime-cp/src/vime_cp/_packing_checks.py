"""What a packed micro-batch refuses, by argument, sample and shape; all ranks refuse alike, before any collective."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._integers import require_response_length

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def check_samples(tokens: Sequence[Tensor], response_lengths: Sequence[int]) -> None:
    """Raise ValueError unless every sample is 1-D, integer, not empty, on one device, with a fitting response."""
    if len(tokens) != len(response_lengths):
        raise ValueError(
            f"pack_micro_batch: tokens has {len(tokens)} samples but response_lengths has {len(response_lengths)}: "
            f"give one response length per sample"
        )
    for i, (sample, response_length) in enumerate(zip(tokens, response_lengths, strict=True)):
        if sample.dim() != 1 or sample.is_floating_point() or sample.is_complex():
            raise ValueError(
                f"pack_micro_batch: tokens[{i}] has shape {tuple(sample.shape)} and dtype {sample.dtype}: "
                f"give integer token ids, [tokens]"
            )
        if not len(sample):
            raise ValueError(
                f"pack_micro_batch: tokens[{i}] is empty: leave the sample out, or give at least one token"
            )
        try:
            require_response_length(len(sample), response_length)
        except ValueError as error:
            raise ValueError(f"pack_micro_batch: sample {i}: {error}") from None
    check_alike("pack_micro_batch", "tokens", tokens)


def check_masks(tokens: Sequence[Tensor], response_lengths: Sequence[int], loss_masks: Sequence[Tensor] | None) -> None:
    """Raise ValueError unless the masks fit the responses and leave unscorable first tokens out."""
    if loss_masks is None:
        loss_masks = [sample.new_ones(length) for sample, length in zip(tokens, response_lengths, strict=True)]
    check_columns("pack_micro_batch", "loss_masks", loss_masks, response_lengths, "response_lengths")
    for i, (sample, mask) in enumerate(zip(tokens, loss_masks, strict=True)):
        if mask.dim() != 1:
            raise ValueError(f"pack_micro_batch: loss_masks[{i}] has shape {tuple(mask.shape)}: give [response]")
        if mask.device != sample.device:
            raise ValueError(
                f"pack_micro_batch: loss_masks[{i}] is on {mask.device} but tokens[{i}] on {sample.device}: "
                f"move them to one device"
            )
        if len(sample) == len(mask) and mask[0] != 0:
            raise ValueError(
                f"pack_micro_batch: sample {i} has no prompt, so nothing predicts its first token, yet "
                f"loss_masks[{i}][0] is {mask[0].item()}: mask that token out or put a start token before it"
            )


def check_columns(where: str, name: str, columns: Sequence[Tensor], lengths: Sequence[int], lengths_name: str) -> None:
    """Raise ValueError unless there is one tensor per sample, as long as ``lengths`` say, of one dtype and device."""
    if len(columns) != len(lengths):
        raise ValueError(
            f"{where}: {name} has {len(columns)} entries for {len(lengths)} samples: give one tensor per sample"
        )
    for i, (column, length) in enumerate(zip(columns, lengths, strict=True)):
        if column.dim() == 0 or len(column) != length:
            raise ValueError(
                f"{where}: {name}[{i}] has shape {tuple(column.shape)} but {lengths_name}[{i}] is {length}: "
                f"give the whole sample's values, before any slicing over ranks"
            )
    check_alike(where, name, columns)


def check_alike(where: str, name: str, tensors: Sequence[Tensor]) -> None:
    """Raise ValueError unless all tensors share dtype, device and trailing shape."""
    for i, tensor in enumerate(tensors):
        first = tensors[0]
        if (tensor.dtype, tensor.device, tensor.shape[1:]) != (first.dtype, first.device, first.shape[1:]):
            raise ValueError(
                f"{where}: {name}[{i}] is {tensor.dtype} {tuple(tensor.shape)} on {tensor.device} but {name}[0] is "
                f"{first.dtype} {tuple(first.shape)} on {first.device}: give all samples one dtype, device and "
                f"trailing shape"
            )
