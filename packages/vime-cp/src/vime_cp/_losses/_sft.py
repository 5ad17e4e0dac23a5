"""Supervised fine-tuning: the negative log-likelihood of the given tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vime_cp._checks import check_tokens, keep_unmasked

if TYPE_CHECKING:
    from jaxtyping import Float, Num
    from torch import Tensor


def sft_loss(
    log_probs: Float[Tensor, " local"], *, mask: Num[Tensor, " local"] | None = None
) -> Float[Tensor, " local"]:
    """Return -log_probs per token: cross-entropy against the data.

    Args:
        log_probs: of the model in training, for the tokens of the data.
        mask: not 0 at tokens to learn; elsewhere loss and gradient are 0.

    Raises:
        ValueError: log-probabilities that are not [tokens], or a mask of another shape.

    >>> from vime_cp import sft_loss
    >>> sft_loss(torch.tensor([-0.5, -2.0]), mask=torch.tensor([True, False]))
    tensor([0.5000, 0.0000])
    """
    check_tokens("sft_loss", mask=mask, log_probs=log_probs)
    return keep_unmasked(-log_probs, mask)
