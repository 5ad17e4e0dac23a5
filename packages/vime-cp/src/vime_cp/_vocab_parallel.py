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

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
        log_probs = kept.target_logit - kept.log_normalizer
        entropies = -full.negative_entropy if entropy else None
        if shard.mask is not None:
            log_probs = torch.where(shard.mask != 0, log_probs, 0)
            entropies = None if entropies is None else torch.where(shard.mask != 0, entropies, 0)
        ctx.shard, ctx.entropy_grad = shard, entropy_grad
        ctx.save_for_backward(logits, targets, kept.log_normalizer, full.log_normalizer, full.negative_entropy)
        if entropies is not None and not entropy_grad:
            ctx.mark_non_differentiable(entropies)
        return log_probs, entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_log_probs: Tensor, grad_entropy: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradient of the logits, in their dtype."""
        logits, targets, log_kept, log_full, negative_entropy = ctx.saved_tensors
        shard: VocabShard = ctx.shard
        rates = Rates(
            log_probs=grad_log_probs,
            entropy=grad_entropy if ctx.entropy_grad else None,
            log_kept=log_kept,
            log_full=log_full,
            negative_entropy=negative_entropy,
        )
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Per row: gradients of the two results, and the statistics that turn a logit into a probability again."""

    log_probs: Float[Tensor, " tokens"]
    entropy: Float[Tensor, " tokens"] | None
    log_kept: Float[Tensor, " tokens"]
    log_full: Float[Tensor, " tokens"]
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
    """Write into ``out`` what the chunk's logits receive through p: -p (g_log_prob + g_entropy (log p + H))."""
    scores = -rates.log_probs[rows, None]
    if rates.entropy is None:
        _probabilities(logits, rows, shard, rates.log_kept, out).mul_(scores)
        return
    log_p = shard.shifted(logits[rows], rates.log_full[rows] * shard.temperature, out)
    probs = torch.exp(log_p, out=spare)
    log_p.clamp_(min=LOWEST).sub_(rates.negative_entropy[rows, None]).mul_(-rates.entropy[rows, None])
    if shard.keep_mask is None:
        log_p.add_(scores).mul_(probs)
        return
    log_p.mul_(probs)
    out.add_(_probabilities(logits, rows, shard, rates.log_kept, spare).mul_(scores))


def _probabilities(
    logits: Tensor, rows: slice, shard: VocabShard, log_normalizer: Tensor, out: Tensor
) -> Tensor:
    source = shard.source(logits, rows, out, kept=True)
    return shard.shifted(source, log_normalizer[rows] * shard.temperature, out).exp_()
