"""Softmax over a vocabulary sharded across ranks, reduced to three numbers per row.

Laws
- One pass over the logits and two collectives over ``[tokens]`` numbers (a maximum and a sum), however many chunks.
- Logits are never copied whole: at most two buffers of ``rows_per_chunk`` rows are alive, and they are reused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ._group import Group, reduce_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jaxtyping import Bool, Float, Num
    from torch import Tensor

# exp(-1e4) is 0 in every floating type, and 0 * -1e4 is 0 where 0 * -inf would be NaN.
LOWEST = -1.0e4


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabShard:
    """How to read the logits: which rows count, which vocabulary these columns are, how many rows to hold at once."""

    mask: Num[Tensor, " tokens"] | None
    keep_mask: Bool[Tensor, "tokens vocab_local"] | None
    vocab_start: int
    temperature: float
    rows_per_chunk: int
    group: Group

    def chunks(self, tokens: int) -> Iterator[slice]:
        """Slices of rows that together are all rows."""
        return (slice(start, start + self.rows_per_chunk) for start in range(0, tokens, self.rows_per_chunk))

    def buffer(self, logits: Tensor) -> Tensor:
        """One chunk of rows in the accumulation dtype."""
        rows = min(self.rows_per_chunk, logits.shape[0])
        return torch.empty(rows, logits.shape[1], dtype=accumulation_dtype(logits), device=logits.device)

    def source(self, logits: Tensor, rows: slice, buffer: Tensor, *, kept: bool) -> Tensor:
        """The logits of a chunk; with ``kept``, in the buffer, with -inf where a sampler discarded them."""
        chunk = logits[rows]
        if not kept or self.keep_mask is None:
            return chunk
        return buffer[: len(chunk)].copy_(chunk).masked_fill_(~self.keep_mask[rows], -torch.inf)

    def shifted(self, source: Tensor, shift: Tensor, out: Tensor) -> Tensor:
        """``(source - shift) / temperature`` in the buffer ``out``, with one shift per row.

        A row of -inf stays -inf: -inf - (-inf) would turn a shard that only pads the vocabulary into NaN.
        """
        torch.sub(source, shift[:, None].clamp_min(torch.finfo(shift.dtype).min), out=out)
        return out if self.temperature == 1.0 else out.div_(self.temperature)

    def local_columns(self, targets: Tensor, vocab_local: int) -> tuple[Tensor, Tensor]:
        """Column of every target, 0 where another rank owns it, and whether this rank owns it."""
        columns = targets - self.vocab_start
        owned = (columns >= 0) & (columns < vocab_local)
        return columns.masked_fill(~owned, 0), owned


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxStats:
    """Per row, over the whole vocabulary, with z = logits / temperature.

    Attributes:
        largest: the largest logit, before the temperature.
        log_total: log sum exp(z - largest z); apart from ``largest``, so that large logits cost no digits.
        log_prob: log p of the target; NaN where not exactly one rank owns the target.
        negative_entropy: sum p log p; meaningless unless it was asked for.
    """

    largest: Float[Tensor, " tokens"]
    log_total: Float[Tensor, " tokens"]
    log_prob: Float[Tensor, " tokens"]
    negative_entropy: Float[Tensor, " tokens"]


def accumulation_dtype(logits: Tensor) -> torch.dtype:
    """The dtype sums are kept in: fp64 for fp64 logits, fp32 for every narrower one."""
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def softmax_stats(logits: Tensor, targets: Tensor, shard: VocabShard, *, kept: bool, entropy: bool) -> SoftmaxStats:
    """Reduce each row to its `SoftmaxStats`.

    Every rank sums relative to its own largest logit m: ``exp(z - m)`` and, for the entropy, ``exp(z - m) (z - m)``.
    """
    columns, owned = shard.local_columns(targets, logits.shape[1])
    largest = logits.new_empty(len(logits), dtype=accumulation_dtype(logits))
    # Rows: sum exp(z - m), sum exp(z - m) (z - m), the target's logit, how many ranks own the target.
    sums = largest.new_zeros(4, len(logits))
    z_buffer = shard.buffer(logits)
    weight_buffer = torch.empty_like(z_buffer) if entropy else z_buffer
    for rows in shard.chunks(len(logits)):
        source = shard.source(logits, rows, z_buffer, kept=kept)
        sums[2, rows] = source.gather(1, columns[rows, None])[:, 0].to(sums.dtype)
        largest[rows] = source.amax(1).to(sums.dtype)
        z = shard.shifted(source, largest[rows], z_buffer[: len(source)])
        weights = torch.exp(z, out=weight_buffer[: len(source)])
        torch.sum(weights, 1, out=sums[0, rows])
        if entropy:
            z.clamp_(min=LOWEST)
            sums[1, rows] = torch.bmm(weights[:, None], z[:, :, None])[:, 0, 0]
    sums[3] = owned.to(sums.dtype)
    return _merge_ranks(largest, sums, shard)


def _merge_ranks(largest: Tensor, sums: Tensor, shard: VocabShard) -> SoftmaxStats:
    """Bring the ranks' sums to one common shift and add them."""
    top = reduce_values(largest, "max", shard.group)
    shift = ((largest - top) / shard.temperature).clamp_(min=LOWEST)
    scale = shift.exp()
    total, moment, target, owners = reduce_values(
        torch.stack(
            [
                scale * sums[0],
                scale * (sums[1] + shift * sums[0]),
                torch.where(sums[3] == 1, (sums[2] - top) / shard.temperature, 0),
                sums[3],
            ]
        ),
        "sum",
        shard.group,
    )
    log_total = total.log()
    return SoftmaxStats(
        largest=top,
        log_total=log_total,
        # A target outside the vocabulary, or owned twice, has no probability; NaN says so without a device sync.
        log_prob=torch.where(owners == 1, target - log_total, torch.nan),
        negative_entropy=moment / total - log_total,
    )
