"""On-policy distillation: the student samples, the teacher scores the same tokens, the reverse KL falls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vime_cp._checks import check_tokens, keep_unmasked

from ._policy import safe_ratio

if TYPE_CHECKING:
    from jaxtyping import Float, Num
    from torch import Tensor


def distillation_advantages(
    log_probs: Float[Tensor, " local"],
    teacher_log_probs: Float[Tensor, " local"],
    *,
    coefficient: float = 1.0,
    mask: Num[Tensor, " local"] | None = None,
) -> Float[Tensor, " local"]:
    """Return coefficient * (teacher_log_probs - log_probs) per token, to be added to other advantages; no graph.

    Args:
        log_probs: of the student that sampled the tokens, at the sampling temperature.
        teacher_log_probs: of the teacher for the same tokens, at the same temperature; under CP sliced alike.
        coefficient: weight of the reverse KL.
        mask: not 0 at tokens that count; 0 elsewhere.

    Raises:
        ValueError: shapes, dtypes or devices that differ, for example teacher scores that were not CP-sliced.

    Source: K. Lu, "On-Policy Distillation", Thinking Machines Lab, 2025; Agarwal et al., arXiv:2306.13649.

    >>> from vime_cp import distillation_advantages
    >>> distillation_advantages(torch.tensor([-1.0]), torch.tensor([-3.0]))
    tensor([-2.])
    """
    check_tokens("distillation_advantages", mask=mask, log_probs=log_probs, teacher_log_probs=teacher_log_probs)
    return coefficient * (keep_unmasked(teacher_log_probs.detach(), mask) - keep_unmasked(log_probs.detach(), mask))


def distillation_loss(
    log_probs: Float[Tensor, " local"],
    teacher_log_probs: Float[Tensor, " local"],
    *,
    old_log_probs: Float[Tensor, " local"] | None = None,
    mask: Num[Tensor, " local"] | None = None,
) -> Float[Tensor, " local"]:
    """Return r sg(log_probs - teacher_log_probs) per token, whose gradient is that of the reverse KL.

    The value is the k1 estimate of KL(student || teacher); the gradient is sg(d) * r * grad log pi, d the difference,
    r = exp(log_probs - old_log_probs) and sg a stopped gradient. On-policy r is 1 in value.

    Args:
        log_probs: of the student in training; the gradient flows here.
        teacher_log_probs: of the teacher, for the same tokens.
        old_log_probs: of the student that sampled; None means the student in training did.
        mask: not 0 at tokens that count; elsewhere loss and gradient are 0.

    Raises:
        ValueError: shapes, dtypes or devices that differ.

    Sources: as for `distillation_advantages`; the gradient is REINFORCE's (Williams, 1992) with the KL as its cost.

    >>> from vime_cp import distillation_loss
    >>> distillation_loss(torch.tensor([-1.0]), torch.tensor([-3.0]))
    tensor([2.])
    """
    check_tokens(
        "distillation_loss",
        mask=mask,
        log_probs=log_probs,
        teacher_log_probs=teacher_log_probs,
        old_log_probs=old_log_probs,
    )
    log_probs = keep_unmasked(log_probs, mask)
    reference = log_probs if old_log_probs is None else keep_unmasked(old_log_probs, mask)
    difference = log_probs.detach() - keep_unmasked(teacher_log_probs.detach(), mask)
    return safe_ratio(log_probs - reference.detach()) * difference
