"""Packed micro-batches: several samples in one stream, as Megatron and Transformer Engine read it, one rank's share
of it.

Laws
- ``labels`` are shifted before the stream is cut, so the label of a chunk's last position is the next chunk's first
  token.
- ``mask`` stands at logit positions: it is 1 where the *next* token is an unmasked response token of the same sample.
- Every rank of a layout gets the same shapes, also for a micro-batch without samples, which is the filler: padding with
  weight 0 that takes part in forward and backward.
- Everything a gather needs to know is computed here, from lengths that all ranks know, before any collective.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ._context_parallel import ContextParallel
from ._integers import require_int
from ._move import move_tensors
from ._packing_checks import check_masks, check_samples
from ._response_index import ResponseIndex, build_response_index
from ._stream import build_stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float, Int32, Int64, Num
    from torch import Tensor

_WHOLE = ContextParallel()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedMicroBatch:
    """One rank's share of a packed micro-batch; see `pack_micro_batch`.

    Attributes:
        tokens: model input ``[1, local]``; the pad token at padding.
        position_ids: position within the sample ``[1, local]``, counting on through its padding.
        labels: the next token of the same sample ``[local]``; the pad token where there is none.
        mask: loss mask at logit positions ``[local]``; 0 on prompts and padding.
        sample_index: the sample at each place ``[local]``, -1 for padding.
        token_index: the token at each place within the concatenation of all samples' tokens ``[local]``, -1 for
            padding.
        token_rows: for every token of all samples, its row in the ranks' concatenated places; ``[total]``.
        cu_seqlens: boundaries of the *full* padded sequences over all CP ranks, int32 ``[samples + 1]``, one more when
            trailing padding forms a sequence of its own; for ``cu_seqlens_q`` and ``cu_seqlens_kv``, and their
            padded forms.
        max_seqlen: the longest of these sequences.
        total_lengths: tokens of each sample.
        response_lengths: response tokens of each sample.
        responses: where response tokens are scored.
        cp: the rank and layout this was packed for.
    """

    tokens: Int64[Tensor, "1 local"]
    position_ids: Int64[Tensor, "1 local"]
    labels: Int64[Tensor, " local"]
    mask: Float[Tensor, " local"]
    sample_index: Int64[Tensor, " local"]
    token_index: Int64[Tensor, " local"]
    token_rows: Int64[Tensor, " total"]
    cu_seqlens: Int32[Tensor, " boundaries"]
    max_seqlen: int
    total_lengths: tuple[int, ...]
    response_lengths: tuple[int, ...]
    responses: ResponseIndex
    cp: ContextParallel

    @property
    def num_samples(self) -> int:
        """Samples in the micro-batch, over all CP ranks; 0 for a filler."""
        return len(self.total_lengths)

    @property
    def local_length(self) -> int:
        """Places this rank holds, padding included."""
        return self.tokens.shape[1]

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> PackedMicroBatch:
        """The same micro-batch with every tensor on ``device``."""
        responses = self.responses.to(device, non_blocking=non_blocking)
        return dataclasses.replace(move_tensors(self, device, non_blocking=non_blocking), responses=responses)


def pack_micro_batch(
    tokens: Sequence[Int64[Tensor, " total"]],
    response_lengths: Sequence[int],
    loss_masks: Sequence[Num[Tensor, " response"]] | None = None,
    *,
    cp: ContextParallel = _WHOLE,
    pad_multiple: int = 1,
    pad_token_id: int = 0,
) -> PackedMicroBatch:
    """Pack samples into one stream and take the share of rank ``cp.rank``.

    Args:
        tokens: prompt and response of each sample; no sample at all makes a filler.
        response_lengths: how many of each sample's last tokens are the response.
        loss_masks: one entry per response token; None trains on all.
        cp: rank, size and layout, with the alignment of each sequence.
        pad_multiple: every rank's share is padded to a multiple of this (tensor-parallel size under sequence
            parallelism).
        pad_token_id: stands at padding; a valid token, so that log-probs there stay finite.

    Raises:
        ValueError: lengths, shapes, dtypes or devices that do not fit, naming the sample.

    >>> from vime_cp import pack_micro_batch
    >>> batch = pack_micro_batch([torch.tensor([5, 6, 7])], [2])
    >>> batch.tokens.tolist(), batch.labels.tolist(), batch.mask.tolist()
    ([[5, 6, 7]], [6, 7, 0], [1.0, 1.0, 0.0])
    """
    require_int("pad_multiple", pad_multiple, minimum=1)
    check_samples(tokens, response_lengths)
    check_masks(tokens, response_lengths, loss_masks)
    total = torch.tensor([len(t) for t in tokens], dtype=torch.int64)
    response = torch.tensor(list(response_lengths), dtype=torch.int64)
    stream = build_stream(total, cp, pad_multiple)
    sequence, position = stream.places()
    token_index, has_next = _token_index(total, sequence, position)
    responses = build_response_index(stream, total, response)
    device = tokens[0].device if tokens else torch.device("cpu")
    flat = torch.cat([*tokens, torch.tensor([pad_token_id], device=device)])
    boundaries = stream.boundaries
    packed = PackedMicroBatch(
        tokens=flat[token_index.to(device)][None],
        position_ids=position[None],
        labels=flat[torch.where(has_next, token_index + 1, -1).to(device)],
        mask=_flat_mask(response_lengths, loss_masks, device)[responses.at_place.to(device)],
        sample_index=torch.where(token_index < 0, -1, sequence),
        token_index=token_index,
        token_rows=stream.token_rows(total),
        cu_seqlens=boundaries.to(torch.int32),
        max_seqlen=int((boundaries[1:] - boundaries[:-1]).max()),
        total_lengths=tuple(total.tolist()),
        response_lengths=tuple(response.tolist()),
        responses=responses,
        cp=cp,
    )
    return packed.to(device)


def packed_length(total_lengths: Sequence[int], *, cp: ContextParallel = _WHOLE, pad_multiple: int = 1) -> int:
    """Places that every rank holds of a micro-batch with samples of these lengths, padding included.

    Known from the plan alone, so a step's token count for Megatron (`megatron_loss`) needs no communication. Zigzag
    with CP rounds an odd ``pad_multiple`` up to an even one, since a rank's share consists of two chunks.

    >>> from vime_cp import ContextParallel, packed_length
    >>> packed_length([10, 7], cp=ContextParallel(size=2), pad_multiple=8)
    16
    """
    require_int("pad_multiple", pad_multiple, minimum=1)
    return build_stream(torch.tensor(list(total_lengths), dtype=torch.int64), cp, pad_multiple).local_length


def _token_index(total: Tensor, sequence: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
    """The token at each place, -1 for padding, and whether it has a successor in its sample."""
    lengths = torch.cat([total, total.new_zeros(1)])[sequence]
    starts = torch.cat([total.new_zeros(1), total.cumsum(0)])[sequence]
    return torch.where(position < lengths, starts + position, -1), position + 1 < lengths


def _flat_mask(response_lengths: Sequence[int], loss_masks: Sequence[Tensor] | None, device: torch.device) -> Tensor:
    """All samples' masks in one tensor, with a final 0 for places that score nothing."""
    flat = torch.cat(list(loss_masks)) if loss_masks else torch.ones(sum(response_lengths), device=device)
    flat = flat if flat.is_floating_point() else flat.to(torch.float32)
    return torch.cat([flat, flat.new_zeros(1)])
