"""GSPO: one importance ratio per sequence, also for sequences whose tokens lie on several CP ranks.

Law: each rank's weighted sum is a part of the whole loss, and the ratio's collective sums gradients backward, so value
and gradient are those of the uncut sequence under any split. Every rank of the CP group must run backward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vime_cp._checks import check_sample_index, check_tokens, keep_unmasked
from vime_cp._sequence import sequence_sums, to_tokens

from ._policy import PolicyLoss, check_clips, clipped_surrogate

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Num
    from torch import Tensor

    from vime_cp._context_parallel import ContextParallel


def gspo_loss(
    log_probs: Float[Tensor, " local"],
    old_log_probs: Float[Tensor, " local"],
    advantages: Float[Tensor, " local"],
    *,
    sample_index: Int[Tensor, " local"],
    num_samples: int,
    cp: ContextParallel | None = None,
    clip_low: float = 3e-4,
    clip_high: float | None = 4e-4,
    mask: Num[Tensor, " local"] | None = None,
) -> PolicyLoss:
    """PPO's clipped loss with r = exp(mean over the sequence's unmasked tokens of log_probs - old_log_probs).

    Every token of a sequence carries the sequence's loss, so the mean over its tokens is the loss of the paper.

    Args:
        log_probs: of the policy in training, at this rank's positions.
        old_log_probs: of the policy that the ratio is taken to.
        advantages: one per token, equal within a sequence.
        sample_index: the sequence of each position; -1 for padding.
        num_samples: sequences in the micro-batch, also those of which this rank holds nothing.
        cp: the ranks that share the sequences; None where this rank holds them whole.
        clip_low: how far the sequence ratio may fall below 1; the paper's values are far smaller than PPO's.
        clip_high: how far it may rise above 1; None means ``clip_low``.
        mask: not 0 at tokens that count; masked tokens are in no mean and have loss 0.

    Raises:
        ValueError: shapes, dtypes or devices that differ, clips out of range; before the collective.

    Source: GSPO, arXiv:2507.18071, equations 5 to 7.

    >>> from vime_cp import gspo_loss
    >>> new, old, sample_index = torch.tensor([0.3, 0.1, 0.0]), torch.zeros(3), torch.tensor([0, 0, 1])
    >>> gspo_loss(new, old, torch.ones(3), sample_index=sample_index, num_samples=2, clip_low=0.5, clip_high=0.5).ratio
    tensor([1.2214, 1.2214, 1.0000])
    """
    where = "gspo_loss"
    check_tokens(where, mask=mask, log_probs=log_probs, old_log_probs=old_log_probs, advantages=advantages)
    check_sample_index(where, sample_index, "log_probs", log_probs)
    high = check_clips(where, clip_low, clip_high, None)
    log_ratio = keep_unmasked(log_probs, mask) - keep_unmasked(old_log_probs.detach(), mask)
    sums, counts = sequence_sums([log_ratio], mask, sample_index, num_samples, cp, gradient="partial")
    per_token = keep_unmasked(to_tokens(sums / counts.clamp_min(1), sample_index), mask)
    advantages = keep_unmasked(advantages.detach(), mask)
    return clipped_surrogate(per_token, advantages, clip_low=clip_low, clip_high=high, dual_clip=None)
