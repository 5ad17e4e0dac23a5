"""CISPO: the clipped ratio is a weight without gradient, so clipped tokens still learn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vime_cp._checks import check_at_least, check_tokens, keep_unmasked

from ._policy import PolicyLoss, safe_ratio

if TYPE_CHECKING:
    from jaxtyping import Float, Num
    from torch import Tensor


def cispo_loss(
    log_probs: Float[Tensor, " local"],
    old_log_probs: Float[Tensor, " local"],
    advantages: Float[Tensor, " local"],
    *,
    clip_low: float = 1.0,
    clip_high: float = 4.0,
    mask: Num[Tensor, " local"] | None = None,
) -> PolicyLoss:
    """Return -sg(clip(r, 1 - clip_low, 1 + clip_high)) A log_probs per token; sg stops the gradient.

    Args:
        log_probs: of the policy in training; the gradient flows here and nowhere else.
        old_log_probs: of the policy that sampled, r = exp(log_probs - old_log_probs).
        advantages: one per token.
        clip_low: 1 or more leaves the ratio without a lower bound, as the paper does.
        clip_high: how far the weight may rise above 1.
        mask: not 0 at tokens that count; elsewhere loss and gradient are 0.

    Raises:
        ValueError: shapes, dtypes or devices that differ, or negative clips.

    Source: MiniMax-M1, arXiv:2506.13585, equations 4 and 5.

    >>> from vime_cp import cispo_loss
    >>> cispo_loss(torch.tensor([-1.0]), torch.tensor([-1.5]), torch.tensor([2.0]), clip_high=0.2).loss
    tensor([2.4000])
    """
    where = "cispo_loss"
    check_tokens(where, mask=mask, log_probs=log_probs, old_log_probs=old_log_probs, advantages=advantages)
    check_at_least(where, "clip_low", clip_low, 0.0)
    check_at_least(where, "clip_high", clip_high, 0.0)
    log_probs = keep_unmasked(log_probs, mask)
    log_ratio = log_probs.detach() - keep_unmasked(old_log_probs.detach(), mask)
    ratio = safe_ratio(log_ratio)
    weight = ratio.clamp(max(0.0, 1 - clip_low), 1 + clip_high)
    loss = -weight * keep_unmasked(advantages.detach(), mask) * log_probs
    return PolicyLoss(loss=loss, ratio=ratio, clipped=weight != ratio, approx_kl=-log_ratio)
