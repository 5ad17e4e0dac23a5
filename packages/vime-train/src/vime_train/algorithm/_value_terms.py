"""The critic's loss of a token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vime_cp import value_loss
from vime_train.algorithm._loss_terms import LossTerms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxtyping import Float
    from torch import Tensor

    from vime_cp import PackedMicroBatch
    from vime_train.config import CriticSection


def value_terms(
    section: CriticSection,
    *,
    values: Float[Tensor, " local"],
    columns: Mapping[str, Float[Tensor, " local"]],
    packed: PackedMicroBatch,
) -> LossTerms:
    """Squared error to `columns["returns"]`, clipped around `columns["values"]` unless `value_clip` is 0."""
    clip = section.value_clip
    if clip == 0:
        found = value_loss(values, columns["returns"], mask=packed.mask)
    else:
        found = value_loss(values, columns["returns"], old_values=columns["values"], clip=clip, mask=packed.mask)
    return LossTerms(loss=found.loss, means={"value_clip_fraction": found.clipped.to(values.dtype)})
