"""The clipped policy loss of PPO, with DAPO's separate upper clip and the dual clip for negative advantages.

Laws
- Every token's loss depends on that token alone, so no split can change it.
- Masked positions have loss 0 and gradient 0, whatever their inputs are.
- Beyond exp(+-20) a ratio is held constant: it could only overflow, and inf * 0 is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from vime_cp._checks import check_at_least, check_tokens, keep_unmasked

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Num
    from torch import Tensor

# exp(20) = 4.9e8: beyond it a token's ratio is an accident, and exp overflows fp32 at 88, after which inf * 0 is NaN.
LOG_RATIO_LIMIT = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLoss:
    """Loss per token, and what a run wants to see of it; only `loss` carries a graph.

    Attributes:
        loss: loss of each token, to be weighted and summed.
        ratio: pi / pi_old of each token, or of its sequence where the loss is defined on sequences.
        clipped: True where a clip set the loss, so that the token gives no gradient (CISPO: a smaller one).
        approx_kl: log pi_old - log pi, whose mean estimates KL(pi_old || pi).
    """

    loss: Float[Tensor, " local"]
    ratio: Float[Tensor, " local"]
    clipped: Bool[Tensor, " local"]
    approx_kl: Float[Tensor, " local"]


def policy_loss(
    log_probs: Float[Tensor, " local"],
    old_log_probs: Float[Tensor, " local"],
    advantages: Float[Tensor, " local"],
    *,
    clip_low: float = 0.2,
    clip_high: float | None = None,
    dual_clip: float | None = None,
    mask: Num[Tensor, " local"] | None = None,
) -> PolicyLoss:
    """Return max(-r A, -clip(r, 1 - clip_low, 1 + clip_high) A) per token, r = exp(log_probs - old_log_probs).

    Args:
        log_probs: of the policy in training; the gradient flows here.
        old_log_probs: of the policy that the ratio is taken to.
        advantages: one per token.
        clip_low: how far the ratio may fall below 1 before the loss is clipped.
        clip_high: how far it may rise above 1; None means `clip_low`. Larger is DAPO's clip-higher.
        dual_clip: c > 1 bounds the loss of a negative advantage by -c A; None leaves it unbounded.
        mask: not 0 at tokens that count.

    Raises:
        ValueError: shapes, dtypes or devices that differ, or clips out of range.

    Sources: PPO, arXiv:1707.06347, equation 7; clip-higher: DAPO, arXiv:2503.14476, section 3.1; dual clip: Ye et al.,
    arXiv:1912.09729.

    >>> from vime_cp import policy_loss
    >>> result = policy_loss(torch.tensor([0.5, 0.0]), torch.zeros(2), torch.tensor([1.0, 1.0]))
    >>> result.loss, result.clipped
    (tensor([-1.2000, -1.0000]), tensor([ True, False]))
    """
    where = "policy_loss"
    check_tokens(where, mask=mask, log_probs=log_probs, old_log_probs=old_log_probs, advantages=advantages)
    high = check_clips(where, clip_low, clip_high, dual_clip)
    log_ratio = keep_unmasked(log_probs, mask) - keep_unmasked(old_log_probs.detach(), mask)
    return clipped_surrogate(
        log_ratio, keep_unmasked(advantages.detach(), mask), clip_low=clip_low, clip_high=high, dual_clip=dual_clip
    )


def check_clips(where: str, clip_low: float, clip_high: float | None, dual_clip: float | None) -> float:
    """Validate clip bounds and return the upper one."""
    high = clip_low if clip_high is None else clip_high
    check_at_least(where, "clip_low", clip_low, 0.0)
    check_at_least(where, "clip_high", high, 0.0)
    if dual_clip is not None:
        check_at_least(where, "dual_clip", dual_clip, 1.0, above=True)
    return high


def safe_ratio(log_ratio: Tensor) -> Tensor:
    """Return exp(log_ratio), constant beyond +-20 where it could only overflow."""
    return log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def clipped_surrogate(
    log_ratio: Tensor, advantages: Tensor, *, clip_low: float, clip_high: float, dual_clip: float | None
) -> PolicyLoss:
    """Apply the PPO clips to log-ratios of tokens or sequences; the arithmetic that PPO and GSPO share."""
    ratio = safe_ratio(log_ratio)
    plain = -ratio * advantages
    bounded = -ratio.clamp(1 - clip_low, 1 + clip_high) * advantages
    clipped = bounded > plain
    loss = torch.where(clipped, bounded, plain)
    if dual_clip is not None:
        ceiling = -dual_clip * advantages
        capped = (advantages < 0) & (ceiling < loss)
        loss = torch.where(capped, ceiling, loss)
        clipped = clipped | capped
    return PolicyLoss(loss=loss, ratio=ratio.detach(), clipped=clipped, approx_kl=-log_ratio.detach())
