"""The critic's squared error, with PPO's clip around the values that the advantages were made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from vime_cp._checks import check_at_least, check_tokens, keep_unmasked

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Num
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueLoss:
    """Squared error per token, and True where the clip set it, so that the token gives no gradient."""

    loss: Float[Tensor, " local"]
    clipped: Bool[Tensor, " local"]


def value_loss(
    values: Float[Tensor, " local"],
    returns: Float[Tensor, " local"],
    *,
    old_values: Float[Tensor, " local"] | None = None,
    clip: float = 0.2,
    mask: Num[Tensor, " local"] | None = None,
) -> ValueLoss:
    """Return max((v - R)^2, (clip(v, v_old - clip, v_old + clip) - R)^2) per token, without a factor 1/2.

    Args:
        values: of the critic in training; the gradient flows here. Values are never divided by a temperature.
        returns: what they should predict.
        old_values: the values at the time of the rollout; None leaves the error unclipped.
        clip: how far a value may move from its old one before the gradient ends.
        mask: not 0 at tokens that count; elsewhere loss and gradient are 0.

    Raises:
        ValueError: shapes, dtypes or devices that differ, or a negative clip.

    Source: PPO's reference implementation (openai/baselines, ppo2); Engstrom et al., arXiv:2005.12729, section 3.

    >>> from vime_cp import value_loss
    >>> value_loss(torch.tensor([1.0]), torch.tensor([0.0]), old_values=torch.tensor([2.0])).loss
    tensor([3.2400])
    """
    where = "value_loss"
    check_tokens(where, mask=mask, values=values, returns=returns, old_values=old_values)
    check_at_least(where, "clip", clip, 0.0)
    values, returns = keep_unmasked(values, mask), keep_unmasked(returns.detach(), mask)
    error = (values - returns).square()
    if old_values is None:
        return ValueLoss(loss=error, clipped=torch.zeros_like(error, dtype=torch.bool))
    old = keep_unmasked(old_values.detach(), mask)
    bounded = (torch.clamp(values, old - clip, old + clip) - returns).square()
    clipped = bounded > error
    return ValueLoss(loss=torch.where(clipped, bounded, error), clipped=clipped)
