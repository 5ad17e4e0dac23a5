"""The entropy bonus: a loss that falls as the policy becomes more uncertain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vime_cp._checks import check_tokens, keep_unmasked

if TYPE_CHECKING:
    from jaxtyping import Float, Num
    from torch import Tensor


def entropy_bonus(
    entropy: Float[Tensor, " local"], coefficient: float, *, mask: Num[Tensor, " local"] | None = None
) -> Float[Tensor, " local"]:
    """Return -coefficient * entropy per token, to be added to the policy loss.

    Args:
        entropy: of the policy in training, in nats, from `log_probs_and_entropy(..., entropy=True)`.
        coefficient: weight of the bonus; positive values favour exploration.
        mask: not 0 at tokens that count; elsewhere loss and gradient are 0.

    Raises:
        ValueError: an entropy that is not [tokens], or a mask of another shape.

    Source: Williams and Peng, "Function optimization using connectionist reinforcement learning algorithms", 1991.

    >>> from vime_cp import entropy_bonus
    >>> entropy_bonus(torch.tensor([2.0]), 0.01)
    tensor([-0.0200])
    """
    check_tokens("entropy_bonus", mask=mask, entropy=entropy)
    return -coefficient * keep_unmasked(entropy, mask)
