"""Log-probability and entropy of vocabulary-sharded logits as one differentiable function with a hand-written backward.

With p = softmax(z), z = logits / temperature, and one target per row:

    log p(target) = z[target] - log sum exp z        d log p / dz = onehot - p
    H = -sum p log p                                 d H / dz = -p (log p + H)

Laws
- Backward needs no collective, and nothing but the logits and a few numbers per row.
- Beyond the logits' gradient at most two buffers of ``rows_per_chunk`` rows are alive.
- A masked row, or one whose loss does not depend on it, has gradient exactly 0 whatever its logits are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ._softmax_stats import LOWEST, VocabShard, softmax_stats

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from torch import Tensor


class LogProbsAndEntropy(Function):
    """Arguments: logits, targets, how to read them, whether to measure entropy, whether it is differentiable."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, shard: VocabShard, entropy: bool, entropy_grad: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Log-probabilities, and entropies or None."""
        filtered = shard.keep_mask is not None
        kept = softmax_stats(logits, targets, shard, kept=True, entropy=entropy and not filtered)
        full = softmax_stats(logits, targets, shard, kept=False, entropy=True) if entropy and filtered else kept
        log_probs = kept.log_prob
        entropies = -full.negative_entropy if entropy else None
        if shard.mask is not None:
            log_probs = torch.where(shard.mask != 0, log_probs, 0)
            entropies = None if entropies is None else torch.where(shard.mask != 0, entropies, 0)
        ctx.shard, ctx.entropy_grad = shard, entropy_grad
        rows = kept.largest, kept.log_total, full.largest, full.log_total, full.negative_entropy
        ctx.save_for_backward(logits, targets, *rows)
        if entropies is not None and not entropy_grad:
            ctx.mark_non_differentiable(entropies)
        return log_probs, entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_log_probs: Tensor, grad_entropy: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradient of the logits, in their dtype."""
        logits, targets, *stats = ctx.saved_tensors
        shard: VocabShard = ctx.shard
        rates = Rates(grad_log_probs, grad_entropy if ctx.entropy_grad else None, *stats)
        columns, owned = shard.local_columns(targets, logits.shape[1])
        at_target = torch.where(owned, grad_log_probs, 0)[:, None]
        dead = rates.dead(shard.mask)[:, None]
        grad = torch.empty_like(logits)
        spare = shard.buffer(logits)
        buffer = grad if grad.dtype == spare.dtype else shard.buffer(logits)
        for rows in shard.chunks(len(logits)):
            out = buffer[rows] if buffer is grad else buffer[: len(logits[rows])]
            _through_probabilities(logits, rows, shard, rates, out, spare[: len(out)])
            out.scatter_add_(1, columns[rows, None], at_target[rows])
            if shard.temperature != 1.0:
                out.div_(shard.temperature)
            out.masked_fill_(dead[rows], 0)
            if buffer is not grad:
                grad[rows] = out
        return grad, None, None, None, None


class Rates(NamedTuple):
    """Per row: gradients of the two results, and the statistics that turn a logit into a probability again."""

    log_probs: Float[Tensor, " tokens"]
    entropy: Float[Tensor, " tokens"] | None
    kept_largest: Float[Tensor, " tokens"]
    kept_log_total: Float[Tensor, " tokens"]
    full_largest: Float[Tensor, " tokens"]
    full_log_total: Float[Tensor, " tokens"]
    negative_entropy: Float[Tensor, " tokens"]

    def dead(self, mask: Tensor | None) -> Bool[Tensor, " tokens"]:
        """Rows that are masked, or on which nothing depends."""
        dead = self.log_probs == 0
        if self.entropy is not None:
            dead = dead & (self.entropy == 0)
        return dead if mask is None else dead | (mask == 0)


def _through_probabilities(
    logits: Tensor, rows: slice, shard: VocabShard, rates: Rates, out: Tensor, spare: Tensor
) -> None:
    """Write into ``out`` what the chunk's logits receive through p: -p (g_log_prob + g_entropy (log p + H)).

    p = exp(z - largest z) / total; the division is folded into the factors per row.
    """
    if rates.entropy is None:
        _score_term(logits, rows, shard, rates, out)
        return
    z = shard.shifted(logits[rows], rates.full_largest[rows], out)
    weights = torch.exp(z, out=spare)
    inverse_total = torch.exp(-rates.full_log_total[rows])
    constant = rates.negative_entropy[rows] + rates.full_log_total[rows]
    z.clamp_(min=LOWEST).sub_(constant[:, None]).mul_((-rates.entropy[rows] * inverse_total)[:, None])
    if shard.keep_mask is None:
        z.sub_((rates.log_probs[rows] * inverse_total)[:, None]).mul_(weights)
        return
    z.mul_(weights)
    out.add_(_score_term(logits, rows, shard, rates, spare))


def _score_term(logits: Tensor, rows: slice, shard: VocabShard, rates: Rates, out: Tensor) -> Tensor:
    """-p g_log_prob in ``out``, with p over the entries that were kept."""
    source = shard.source(logits, rows, out, kept=True)
    weights = shard.shifted(source, rates.kept_largest[rows], out).exp_()
    return weights.mul_((-rates.log_probs[rows] * torch.exp(-rates.kept_log_total[rows]))[:, None])
