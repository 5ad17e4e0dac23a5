"""Log-probability and entropy of vocabulary-sharded logits: the arithmetic and its hand-written backward.

With p = softmax(z), m the largest logit, S = sum exp(z - m) and one target per row:

    log p(target) = z[target] - m - log S            d log p / dz = onehot - p
    H = log S - sum p (z - m)                        d H / dz = -p (log p + H)

Laws
- Two collectives in forward (one maximum, one sum, over `[tokens]` numbers) and none in backward.
- Besides the logits and their gradient, only one chunk of rows is alive at a time; logits are never copied whole.
- A masked row has value 0 and gradient 0 whatever its logits are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxStats:
    """Per row, over the whole vocabulary: log of the normaliser, and the mean of z - normaliser under p (= -H)."""

    log_normalizer: Float[Tensor, " tokens"]
    target_logit: Float[Tensor, " tokens"]
    negative_entropy: Float[Tensor, " tokens"]


def accumulation_dtype(logits: Tensor) -> torch.dtype:
    """Return the type sums are kept in: fp64 for fp64 logits, fp32 for every narrower type."""
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def _row_chunks(tokens: int, rows: int) -> Iterator[slice]:
    return (slice(start, min(start + rows, tokens)) for start in range(0, tokens, rows))


def _scaled_chunk(logits: Tensor, rows: slice, shard: VocabShard, *, kept: bool) -> Tensor:
    """Return rows as logits / temperature in the accumulation type; with `kept`, discarded entries become -inf."""
    z = logits[rows].to(accumulation_dtype(logits), copy=True)
    if shard.temperature != 1.0:
        z.div_(shard.temperature)
    if kept and shard.keep_mask is not None:
        z.masked_fill_(~shard.keep_mask[rows], -torch.inf)
    return z


def _local_targets(targets: Tensor, shard: VocabShard, vocab_local: int) -> tuple[Tensor, Tensor]:
    """Return each row's target as a local column (0 where another shard owns it) and whether this shard owns it."""
    columns = targets - shard.vocab_start
    owned = (columns >= 0) & (columns < vocab_local)
    return columns.masked_fill(~owned, 0), owned


def softmax_stats(logits: Tensor, targets: Tensor, shard: VocabShard, *, kept: bool, entropy: bool) -> SoftmaxStats:
    """Reduce logits to three numbers per row with one pass over the shard and two collectives over `[tokens]`."""
    tokens, vocab_local = logits.shape
    dtype = accumulation_dtype(logits)
    columns, owned = _local_targets(targets, shard, vocab_local)
    local_max = torch.empty(tokens, dtype=dtype, device=logits.device)
    # Rows of `sums`: sum exp(z - m), sum exp(z - m) (z - m), the target's logit, how many shards own the target.
    sums = torch.zeros(4, tokens, dtype=dtype, device=logits.device)
    for rows in _row_chunks(tokens, shard.rows_per_chunk):
        z = _scaled_chunk(logits, rows, shard, kept=kept)
        sums[2, rows] = z.gather(1, columns[rows, None])[:, 0]
        local_max[rows] = top = z.amax(1)
        z.sub_(top[:, None].clamp_min(torch.finfo(dtype).min))
        if entropy:
            weights = z.exp()
            sums[0, rows] = weights.sum(1)
            z.clamp_(min=LOWEST)
            sums[1, rows] = torch.bmm(weights[:, None], z[:, :, None])[:, 0, 0]
        else:
            sums[0, rows] = z.exp_().sum(1)
    sums[2].masked_fill_(~owned, 0)
    sums[3] = owned.to(dtype)
    return _merge_shards(local_max, sums, shard.group)


def _merge_shards(local_max: Tensor, sums: Tensor, group: Group) -> SoftmaxStats:
    top = reduce_values(local_max, "max", group)
    shift = (local_max - top).clamp_(min=LOWEST)
    scale = shift.exp()
    sums[1] = scale * (sums[1] + shift * sums[0])
    sums[0] *= scale
    total, moment, target_logit, owners = reduce_values(sums, "sum", group)
    log_total = total.log()
    return SoftmaxStats(
        log_normalizer=top + log_total,
        # A target outside the vocabulary, or owned twice, has no probability: say so with NaN, without a device sync.
        target_logit=torch.where(owners == 1, target_logit, torch.nan),
        negative_entropy=moment / total - log_total,
    )


class LogProbsAndEntropy(Function):
    """Log-probabilities and entropy with the gradient of the module docstring; see `log_probs_and_entropy`."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, shard: VocabShard, entropy: bool, entropy_grad: bool
    ) -> tuple[Tensor, Tensor | None]:
        stats = softmax_stats(logits, targets, shard, kept=True, entropy=entropy and shard.keep_mask is None)
        log_probs = stats.target_logit - stats.log_normalizer
        full = stats
        if entropy and shard.keep_mask is not None:
            full = softmax_stats(logits, targets, shard, kept=False, entropy=True)
        values = -full.negative_entropy if entropy else None
        if shard.mask is not None:
            log_probs.masked_fill_(shard.mask == 0, 0)
            if values is not None:
                values.masked_fill_(shard.mask == 0, 0)
        ctx.shard, ctx.entropy_grad = shard, entropy_grad
        ctx.save_for_backward(logits, targets, stats.log_normalizer, full.log_normalizer, full.negative_entropy)
        if values is not None and not entropy_grad:
            ctx.mark_non_differentiable(values)
        return log_probs, values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_log_probs: Tensor, grad_entropy: Tensor | None) -> tuple[Tensor | None, ...]:
        logits, targets, log_kept, log_full, negative_entropy = ctx.saved_tensors
        shard: VocabShard = ctx.shard
        columns, owned = _local_targets(targets, shard, logits.shape[1])
        grad_entropy = grad_entropy if ctx.entropy_grad else None
        alive = grad_log_probs != 0 if grad_entropy is None else (grad_log_probs != 0) | (grad_entropy != 0)
        if shard.mask is not None:
            alive &= shard.mask != 0
        grad = torch.empty_like(logits)
        for rows in _row_chunks(logits.shape[0], shard.rows_per_chunk):
            chunk = _entropy_term(logits, rows, shard, log_full, negative_entropy, grad_entropy, grad_log_probs)
            if chunk is None or shard.keep_mask is not None:
                z = _scaled_chunk(logits, rows, shard, kept=True)
                probs = z.sub_(log_kept[rows, None]).exp_().mul_(-grad_log_probs[rows, None])
                chunk = probs if chunk is None else chunk.add_(probs)
            chunk.scatter_add_(1, columns[rows, None], (grad_log_probs[rows] * owned[rows])[:, None])
            if shard.temperature != 1.0:
                chunk.div_(shard.temperature)
            grad[rows] = chunk.masked_fill_(~alive[rows, None], 0)
        return grad, None, None, None, None


def _entropy_term(
    logits: Tensor,
    rows: slice,
    shard: VocabShard,
    log_full: Tensor,
    negative_entropy: Tensor,
    grad_entropy: Tensor | None,
    grad_log_probs: Tensor,
) -> Tensor | None:
    """-p (log p + H) g_H, with -p g_logp folded in where both use the same p; None without an entropy gradient."""
    if grad_entropy is None:
        return None
    log_p = _scaled_chunk(logits, rows, shard, kept=False).sub_(log_full[rows, None])
    probs = log_p.exp()
    factor = log_p.clamp_(min=LOWEST).sub_(negative_entropy[rows, None]).mul_(-grad_entropy[rows, None])
    if shard.keep_mask is None:
        factor.sub_(grad_log_probs[rows, None])
    return factor.mul_(probs)
