"""The loss that the configuration names, token by token, before anything is added to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from vime_cp import PolicyLoss, cispo_loss, gspo_loss, policy_loss, sft_loss
from vime_train.plugins import CONTRACTS, PluginCallError, calling, load

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
    """Loss, ratio and clip of every token of a packed micro-batch; 0 where its mask is 0.

    With `loss_function` the loss is the user's, and no token counts as clipped.

    Raises:
        PluginCallError: if the user's loss raises, or is not one number per token.
    """
    if section.loss_function is not None:
        return _users_loss(section, log_probs, old_log_probs, advantages, packed)
    if section.loss == "sft":
        difference = (old_log_probs - log_probs).detach()
        return PolicyLoss(
            loss=sft_loss(log_probs, mask=packed.mask),
            ratio=(-difference).exp(),
            clipped=torch.zeros_like(log_probs, dtype=torch.bool),
            approx_kl=difference,
        )
    low, high = section.clips
    mask = packed.mask
    if section.loss == "gspo":
        return gspo_loss(
            log_probs,
            old_log_probs,
            advantages,
            sample_index=packed.sample_index,
            num_samples=packed.num_samples,
            cp=packed.cp,
            clip_low=low,
            clip_high=high,
            mask=mask,
        )
    if section.loss == "cispo":
        return cispo_loss(log_probs, old_log_probs, advantages, clip_low=low, clip_high=high, mask=mask)
    return policy_loss(
        log_probs,
        old_log_probs,
        advantages,
        clip_low=low,
        clip_high=high,
        dual_clip=section.dual_clip,
        mask=mask,
    )


def _users_loss(
    section: AlgorithmSection,
    log_probs: Float[Tensor, " local"],
    old_log_probs: Float[Tensor, " local"],
    advantages: Float[Tensor, " local"],
    packed: PackedMicroBatch,
) -> PolicyLoss:
    name = f"algorithm.loss_function = {section.loss_function!r}"
    function = load(str(section.loss_function), CONTRACTS["algorithm.loss_function"])
    kept = packed.mask != 0
    # 0 where nothing counts, so that no value of a masked place can reach the loss or its gradient
    log_probs, old_log_probs, advantages = (
        torch.where(kept, column, 0.0) for column in (log_probs, old_log_probs, advantages)
    )
    with calling(name, lambda: f"{log_probs.numel()} tokens"):
        loss = function(log_probs, old_log_probs, advantages, packed, section)
    if not isinstance(loss, torch.Tensor) or loss.shape != log_probs.shape:
        given = tuple(loss.shape) if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise PluginCallError(f"{name} returned {given}: a tensor of shape {tuple(log_probs.shape)} is needed.")
    difference = (log_probs - old_log_probs).detach()
    return PolicyLoss(
        loss=torch.where(kept, loss, 0.0),
        ratio=difference.exp(),
        clipped=torch.zeros_like(log_probs, dtype=torch.bool),
        approx_kl=-difference,
    )
