"""Columns of a micro-batch: values per token or per response token, into and out of the packed stream.

A column enters whole, one tensor per sample as the rollout produced it, and is laid out exactly as the tokens were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ._collectives import Gradient, all_gather_rows
from ._packing_checks import check_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Int, Shaped
    from torch import Tensor

    from ._packing import PackedMicroBatch


def pack_response(
    values: Sequence[Shaped[Tensor, "response ..."]], micro_batch: PackedMicroBatch, *, fill: float = 0
) -> Shaped[Tensor, "local ..."]:
    """One value per response token (old log-probs, advantages, ...), placed where this rank scores that token.

    Args:
        values: for each sample the whole response's values.
        micro_batch: the micro-batch with the same samples in the same order.
        fill: stands at places that score nothing.

    >>> from vime_cp import pack_micro_batch, pack_response
    >>> batch = pack_micro_batch([torch.tensor([5, 6, 7])], [2])
    >>> pack_response([torch.tensor([0.5, 0.25])], batch)
    tensor([0.5000, 0.2500, 0.0000])
    """
    check_columns("pack_response", "values", values, micro_batch.response_lengths, "response_lengths")
    _check_device("pack_response", "values", values, micro_batch)
    return _place(values, micro_batch.responses.at_place, fill)


def pack_tokens(
    values: Sequence[Shaped[Tensor, "total ..."]], micro_batch: PackedMicroBatch, *, fill: float = 0
) -> Shaped[Tensor, "local ..."]:
    """One value per token, placed where this rank holds that token as input (not where it predicts it).

    Args:
        values: for each sample the values of prompt and response.
        micro_batch: the micro-batch with the same samples in the same order.
        fill: stands at padding.

    >>> from vime_cp import ContextParallel, pack_micro_batch, pack_tokens
    >>> batch = pack_micro_batch([torch.tensor([5, 6, 7])], [2], cp=ContextParallel(rank=0, size=2))
    >>> pack_tokens([torch.tensor([1, 2, 3])], batch)
    tensor([1, 0])
    """
    check_columns("pack_tokens", "values", values, micro_batch.total_lengths, "total_lengths")
    _check_device("pack_tokens", "values", values, micro_batch)
    return _place(values, micro_batch.token_index, fill)


def pack_routed_experts(
    experts: Sequence[Int[Tensor, "forwarded layers topk"]],
    micro_batch: PackedMicroBatch,
    *,
    num_layers: int,
    topk: int,
    num_experts: int,
) -> Int[Tensor, "local layers topk"]:
    """Experts that each token was routed to during generation, for replay in training.

    A sample's last token was sampled but never forwarded, so samples have ``tokens - 1`` rows. That token and
    padding get consecutive experts, all distinct within a row, which keeps the experts' load even.

    Args:
        experts: for each sample ``[tokens - 1, layers, topk]``.
        micro_batch: the micro-batch with the same samples in the same order.
        num_layers: layers with experts.
        topk: experts per token and layer.
        num_experts: experts to choose from, at least ``topk``.

    >>> from vime_cp import pack_micro_batch, pack_routed_experts
    >>> batch = pack_micro_batch([torch.tensor([5, 6, 7])], [2])
    >>> routed = torch.tensor([[[3, 1]], [[0, 2]]])
    >>> pack_routed_experts([routed], batch, num_layers=1, topk=2, num_experts=4).tolist()
    [[[3, 1]], [[0, 2]], [[0, 1]]]
    """
    lengths = [length - 1 for length in micro_batch.total_lengths]
    check_columns("pack_routed_experts", "experts", experts, lengths, "total_lengths - 1")
    _check_device("pack_routed_experts", "experts", experts, micro_batch)
    if experts and experts[0].shape[1:] != (num_layers, topk):
        raise ValueError(
            f"pack_routed_experts: experts[0] has shape {tuple(experts[0].shape)} but num_layers is {num_layers} "
            f"and topk is {topk}: give [tokens - 1, layers, topk]"
        )
    if topk > num_experts:
        raise ValueError(f"pack_routed_experts: topk is {topk} but num_experts is {num_experts}: lower topk")
    index = micro_batch.token_index
    spread = torch.arange(len(index) * topk, device=index.device).view(-1, 1, topk) % num_experts
    if not experts:
        return spread.expand(-1, num_layers, -1)
    unforwarded = experts[0].new_full((1, num_layers, topk), -1)
    placed = _place([torch.cat([rows, unforwarded]) for rows in experts], index, -1)
    return torch.where(placed < 0, spread.to(placed.dtype), placed)


def unpack_response(
    local: Shaped[Tensor, "local ..."], micro_batch: PackedMicroBatch
) -> list[Shaped[Tensor, "scored ..."]]:
    """The values of the response tokens that this rank scores, per sample and in order; no collective.

    The pieces are views of one slice of ``local``, also where they are empty, so they keep its graph.

    >>> from vime_cp import pack_micro_batch, unpack_response
    >>> batch = pack_micro_batch([torch.tensor([5, 6, 7]), torch.tensor([8, 9])], [2, 1])
    >>> unpack_response(torch.arange(5), batch)
    [tensor([0, 1]), tensor([3])]
    """
    _check_local("unpack_response", local, micro_batch)
    responses = micro_batch.responses
    return list(torch.split(local[responses.places[: responses.count]], list(responses.counts)))


def gather_responses(
    local: Shaped[Tensor, "local ..."], micro_batch: PackedMicroBatch, *, gradient: Gradient
) -> list[Shaped[Tensor, "response ..."]]:
    """The values of all response tokens of every sample, on every rank, by one collective for the whole micro-batch.

    A first token without a prompt, which nobody scores, gets 0.

    Args:
        local: one value per local place; several columns go in one collective as ``[local, columns]``.
        micro_batch: the micro-batch that ``local`` was computed on; all ranks call with theirs.
        gradient: ``"partial"`` where each rank's loss is its share of one sum, ``"replicated"`` where all ranks
            compute the same loss from the result, ``"none"`` for a result without graph.

    >>> from vime_cp import ContextParallel, gather_responses, pack_micro_batch, pack_response, simulate
    >>> def rank(group):
    ...     cp = ContextParallel(rank=group.rank, size=group.size, group=group)
    ...     batch = pack_micro_batch([torch.arange(8)], [3], cp=cp)
    ...     return gather_responses(pack_response([torch.tensor([1, 2, 3])], batch), batch, gradient="none")
    >>> simulate(2, rank)
    [[tensor([1, 2, 3])], [tensor([1, 2, 3])]]
    """
    _check_local("gather_responses", local, micro_batch)
    responses = micro_batch.responses
    values = responses.gather(local[responses.places], micro_batch.cp, gradient=gradient)
    return list(torch.split(values, list(micro_batch.response_lengths)))


def gather_tokens(
    local: Shaped[Tensor, "local ..."], micro_batch: PackedMicroBatch, *, gradient: Gradient
) -> list[Shaped[Tensor, "total ..."]]:
    """The values at all tokens of every sample, prompts too, on every rank, by one collective for the micro-batch.

    Args:
        local: one value per local place.
        micro_batch: the micro-batch that ``local`` was computed on; all ranks call with theirs.
        gradient: as for `gather_responses`.

    >>> from vime_cp import gather_tokens, pack_micro_batch
    >>> batch = pack_micro_batch([torch.tensor([5, 6, 7]), torch.tensor([8])], [2, 0], pad_multiple=8)
    >>> gather_tokens(batch.tokens[0], batch, gradient="none")
    [tensor([5, 6, 7]), tensor([8])]
    """
    _check_local("gather_tokens", local, micro_batch)
    values = all_gather_rows(
        local, micro_batch.cp, rows=micro_batch.token_rows, targets=micro_batch.token_index, gradient=gradient
    )
    return list(torch.split(values, list(micro_batch.total_lengths)))


def _place(values: Sequence[Tensor], index: Tensor, fill: float) -> Tensor:
    """The values' concatenation at ``index``, and ``fill`` where it is -1."""
    if not values:
        return torch.full(index.shape, fill, dtype=torch.get_default_dtype(), device=index.device)
    flat = torch.cat([*values, values[0].new_full((1, *values[0].shape[1:]), fill)])
    return flat[index]


def _check_local(where: str, local: Tensor, micro_batch: PackedMicroBatch) -> None:
    if local.dim() == 0 or len(local) != micro_batch.local_length:
        raise ValueError(
            f"{where}: local has shape {tuple(local.shape)} but the micro-batch holds {micro_batch.local_length} "
            f"places on cp rank {micro_batch.cp.rank}: give one value per place, [local, ...]"
        )
    _check_device(where, "local", [local], micro_batch)


def _check_device(where: str, name: str, tensors: Sequence[Tensor], micro_batch: PackedMicroBatch) -> None:
    device = micro_batch.mask.device
    if tensors and tensors[0].device != device:
        raise ValueError(
            f"{where}: {name} is on {tensors[0].device} but the micro-batch on {device}: move them to one device"
        )
