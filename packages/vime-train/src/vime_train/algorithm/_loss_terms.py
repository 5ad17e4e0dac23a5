"""The whole loss of a token: the policy loss with its corrections, the KL penalty, the entropy bonus.

Always true: every part is 0 at masked tokens; corrections multiply the policy loss alone and change no denominator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vime_cp import entropy_bonus, icepop, kl, mis, off_policy_sequence_mask, tis
from vime_train.algorithm._policy_terms import policy_terms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxtyping import Float
    from torch import Tensor

    from vime_cp import ImportanceWeights, PackedMicroBatch
    from vime_train.config import AlgorithmSection

_LARGEST_LOG_RATIO = 20.0
"""Beyond it a ratio could only overflow; `vime_cp` holds its own ratios there too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossTerms:
    """Loss of every token, and per token what a run reports as means; only `loss` carries a graph."""

    loss: Float[Tensor, " local"]
    means: dict[str, Float[Tensor, " local"]]


def loss_terms(
    section: AlgorithmSection,
    *,
    log_probs: Float[Tensor, " local"],
    entropy: Float[Tensor, " local"] | None,
    old_log_probs: Float[Tensor, " local"],
    advantages: Float[Tensor, " local"],
    columns: Mapping[str, Float[Tensor, " local"]],
    packed: PackedMicroBatch,
) -> LossTerms:
    """Loss of a packed micro-batch.

    Args:
        section: what to add up.
        log_probs: of the policy in training.
        entropy: of the policy in training; needed with an entropy coefficient.
        old_log_probs: the denominator of ratios.
        advantages: of every token.
        columns: `rollout_log_probs` for corrections, `reference_log_probs` for KL in the loss.
        packed: where tokens belong.
    """
    mask = packed.mask
    terms = policy_terms(
        section, log_probs=log_probs, old_log_probs=old_log_probs, advantages=advantages, packed=packed
    )
    loss = terms.loss
    means = {"clip_fraction": terms.clipped.to(log_probs.dtype), "approx_kl": terms.approx_kl}
    if section.correction.kind != "none":
        correction = _correct(section, old_log_probs, columns["rollout_log_probs"], packed)
        loss = loss * correction.weights
        means["correction_weight"] = correction.weights
        means["correction_bounded"] = correction.bounded.to(log_probs.dtype)
    if section.off_policy_delta is not None:
        kept = off_policy_sequence_mask(
            log_probs,
            old_log_probs,
            advantages,
            sample_index=packed.sample_index,
            num_samples=packed.num_samples,
            delta=section.off_policy_delta,
            cp=packed.cp,
            mask=mask,
        )
        loss = loss * kept
        means["off_policy_kept"] = kept
    if section.kl_in_loss:
        ratio = (log_probs - old_log_probs).clamp(-_LARGEST_LOG_RATIO, _LARGEST_LOG_RATIO).exp()
        penalty = kl(
            log_probs,
            columns["reference_log_probs"],
            section.kl.estimator,
            importance_weight=ratio if section.kl.unbiased else None,
            mask=mask,
        )
        loss = loss + section.kl.coefficient * penalty
        means["kl"] = penalty.detach()
    if entropy is not None:
        loss = loss + entropy_bonus(entropy, section.entropy_coefficient, mask=mask)
        means["entropy"] = entropy.detach()
    return LossTerms(loss=loss, means=means)


def _correct(section: AlgorithmSection, train: Tensor, rollout: Tensor, packed: PackedMicroBatch) -> ImportanceWeights:
    correction = section.correction
    bounds = {name: value for name, value in (("low", correction.low), ("high", correction.high)) if value is not None}
    if correction.kind == "tis":
        return tis(train, rollout, mask=packed.mask, **bounds)
    if correction.kind == "icepop":
        return icepop(train, rollout, mask=packed.mask, **bounds)
    return mis(
        train,
        rollout,
        level=correction.level,
        mode=correction.mode,
        veto=correction.veto,
        sample_index=packed.sample_index,
        num_samples=packed.num_samples,
        cp=packed.cp,
        mask=packed.mask,
        **bounds,
    )
