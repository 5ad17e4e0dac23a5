"""Estimators of KL(policy || reference) per token, from the log-probabilities of the sampled tokens alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import torch

from vime_cp._checks import check_tokens, keep_unmasked

if TYPE_CHECKING:
    from jaxtyping import Float, Num
    from torch import Tensor

KLEstimator = Literal["k1", "k2", "k3", "low_variance"]

# The bound that trainers of this family put on k3, so that one token cannot carry a step.
_LOW_VARIANCE_LIMIT = 10.0


def kl(
    log_probs: Float[Tensor, " local"],
    ref_log_probs: Float[Tensor, " local"],
    estimator: KLEstimator = "k3",
    *,
    importance_weight: Float[Tensor, " local"] | None = None,
    mask: Num[Tensor, " local"] | None = None,
) -> Float[Tensor, " local"]:
    """Return an estimate of the KL divergence per token, in nats, with d = log_probs - ref_log_probs.

    k1 is d, unbiased with a high variance; k2 is d^2 / 2, whose gradient is that of the KL on-policy;
    k3 is exp(-d) - 1 + d, unbiased and never negative; low_variance is k3, at most 10.

    Args:
        log_probs: of the policy in training; pass it detached where the KL is part of a reward.
        ref_log_probs: of the reference; no gradient flows there.
        estimator: which of the four.
        importance_weight: pi / pi_old per token multiplies the estimate, which makes value and gradient unbiased for
            tokens that another policy sampled. It may carry a graph, and should.
        mask: not 0 at tokens that count; elsewhere the estimate and its gradient are 0, for example at tool tokens.

    Raises:
        ValueError: shapes, dtypes or devices that differ, or an unknown estimator.

    Sources: J. Schulman, "Approximating KL Divergence", 2020; importance-weighted form: DeepSeek-V3.2,
    arXiv:2512.02556, "Unbiased KL Estimate".

    >>> from vime_cp import kl
    >>> kl(torch.tensor([-1.0, -2.0]), torch.tensor([-1.5, -2.0]), "k1")
    tensor([0.5000, 0.0000])
    """
    where = "kl"
    check_tokens(
        where, mask=mask, log_probs=log_probs, ref_log_probs=ref_log_probs, importance_weight=importance_weight
    )
    if estimator not in get_args(KLEstimator):
        raise ValueError(f"{where}: estimator is {estimator!r}: give one of {get_args(KLEstimator)}")
    difference = keep_unmasked(log_probs, mask) - keep_unmasked(ref_log_probs.detach(), mask)
    estimate = _estimate(difference, estimator)
    return estimate if importance_weight is None else estimate * keep_unmasked(importance_weight, mask)


def _estimate(difference: Tensor, estimator: KLEstimator) -> Tensor:
    if estimator == "k1":
        return difference
    if estimator == "k2":
        return difference.square() / 2
    k3 = torch.expm1(-difference) + difference
    return k3.clamp(max=_LOW_VARIANCE_LIMIT) if estimator == "low_variance" else k3
