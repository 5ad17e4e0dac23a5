"""The policy loss that the configuration names, token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vime_cp import PolicyLoss, policy_loss

if TYPE_CHECKING:
    from jaxtyping import Float

    from torch import Tensor
    from vime_cp import PackedMicroBatch
    from vime_train.config import AlgorithmSection


def policy_terms(
    section: AlgorithmSection,
    *,
    log_probs: Float[Tensor, " local"],
    old_log_probs: Float[Tensor, " local"],
    advantages: Float[Tensor, " local"],
    packed: PackedMicroBatch,
) -> PolicyLoss:
    """Loss, ratio and clip of every token of a packed micro-batch; 0 where its mask is 0."""
    return policy_loss(
        log_probs,
        old_log_probs,
        advantages,
        clip_low=section.clip_low,
        clip_high=section.clip_high,
        mask=packed.mask,
    )
