"""Micro-batches of a rank's batch as tensors on the device: what the model reads, and the columns that the loss reads.

Always true: every TP, PP and CP rank of a replica builds the same number of micro-batches with the same shapes, since
all of them follow from the plan and from lengths that all of them hold; a filler is a micro-batch like any other, of
padding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import torch
from megatron.core.packed_seq_params import PackedSeqParams

from vime_cp import ContextParallel, PackedMicroBatch, pack_micro_batch, pack_response
from vime_train.megatron._attention import attention_params
from vime_train.megatron._attention_rows import attention_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import numpy.typing as npt
    from jaxtyping import Float
    from torch import Tensor

    from vime_train.config import BatchingSection
    from vime_train.megatron._groups import Groups
    from vime_train.rollout import RankBatch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MicroBatch:
    """One micro-batch on one rank.

    Attributes:
        packed: tokens, labels, mask and where they belong.
        attention: what Megatron hands through to attention.
        members: indices of the samples in the rank's batch.
        old_log_probs: of the sampling policy, at logit positions.
        advantages: at logit positions.
        columns: what else the batch holds of every token, at logit positions.
        weights: the step's weight of each sample.
    """

    packed: PackedMicroBatch
    attention: PackedSeqParams
    members: tuple[int, ...]
    old_log_probs: Float[Tensor, " local"]
    advantages: Float[Tensor, " local"]
    columns: dict[str, Float[Tensor, " local"]]
    weights: Float[Tensor, " samples"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MicroBatchBuilder:
    """Builds the micro-batches of a step.

    Attributes:
        groups: this rank's place.
        batching: the alignments that the plan counted with.
        pad_multiple: what the model asks each rank's share to be a multiple of, besides.
        inverse_frequencies: of RoPE; None where Transformer Engine rotates by itself.
    """

    groups: Groups
    batching: BatchingSection
    pad_multiple: int
    inverse_frequencies: Float[Tensor, " half"] | None

    def build(self, batch: RankBatch, members: Sequence[tuple[int, ...]]) -> list[MicroBatch]:
        """The micro-batches of the given samples, in order."""
        multiple = math.lcm(self.pad_multiple, self.batching.pack_align)
        if self._needs_equal_lengths:
            multiple = self._equal_length(batch, members, multiple)
        return [self._one(batch, micro_batch, multiple) for micro_batch in members]

    @property
    def context_parallel(self) -> ContextParallel:
        """This rank's place in its context-parallel group."""
        groups = self.groups
        size = groups.layout.cp
        return ContextParallel(
            rank=groups.cp_rank,
            size=size,
            group=groups.cp if size > 1 else None,
            sequence_align=self.batching.sequence_align,
        )

    @property
    def _needs_equal_lengths(self) -> bool:
        """Interleaved stages exchange activations of one shape only: their shape messages would be swapped at PP 2."""
        return self.groups.layout.vpp > 1

    def _equal_length(self, batch: RankBatch, members: Sequence[tuple[int, ...]], multiple: int) -> int:
        """The longest share of the step, so that padding to a multiple of it pads every share to it."""
        cp = self.context_parallel
        shares = [sum(cp.local_length(len(batch.tokens[i])) for i in micro_batch) for micro_batch in members]
        even = math.lcm(multiple, 2)
        return -(-max(shares) // even) * even or even

    def _one(self, batch: RankBatch, members: tuple[int, ...], multiple: int) -> MicroBatch:
        device = self.groups.device
        packed = pack_micro_batch(
            _tensors(batch.tokens, members),
            [batch.response_lengths[i] for i in members],
            _tensors(batch.loss_masks, members),
            cp=self.context_parallel,
            pad_multiple=multiple,
        )
        return MicroBatch(
            packed=packed.to(device),
            attention=self._attention(packed),
            members=members,
            old_log_probs=pack_response(_tensors(batch.old_log_probs, members), packed).to(device),
            advantages=pack_response(_tensors(batch.advantages, members), packed).to(device),
            columns={
                name: pack_response(_tensors(column, members), packed).to(device)
                for name, column in batch.columns.items()
            },
            weights=torch.from_numpy(batch.weights[list(members)]).to(device),
        )

    def _attention(self, packed: PackedMicroBatch) -> PackedSeqParams:
        device, layout = self.groups.device, self.groups.layout
        cu_seqlens = packed.cu_seqlens.to(device)
        if self.inverse_frequencies is None:
            return PackedSeqParams(
                qkv_format="thd",
                cu_seqlens_q=cu_seqlens,
                cu_seqlens_kv=cu_seqlens,
                max_seqlen_q=packed.max_seqlen,
                max_seqlen_kv=packed.max_seqlen,
            )
        return attention_params(
            cu_seqlens,
            packed.max_seqlen,
            attention_rows(packed.cu_seqlens.long().numpy(), cp_rank=self.groups.cp_rank, cp_size=layout.cp),
            packed.position_ids[0].to(device)[:, None] * self.inverse_frequencies,
            context_group=self.groups.cp if layout.cp > 1 else None,
        )


def steps_of(batch: RankBatch) -> Iterator[list[tuple[int, ...]]]:
    """The members of the micro-batches of each optimizer step in turn."""
    counts = batch.schedule.num_microbatches
    for count, end in zip(counts, accumulate(counts), strict=True):
        yield list(batch.schedule.micro_batch_indices[end - count : end])


def _tensors(column: Sequence[npt.NDArray[np.generic]], members: tuple[int, ...]) -> list[Tensor]:
    return [torch.from_numpy(column[i]) for i in members]
