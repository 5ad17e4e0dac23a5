"""Whitening: unmasked values of all ranks shifted and scaled to mean 0 and variance 1.

Laws
- The result does not depend on how tokens were spread over ranks, nor on ranks that hold none (M2, C2).
- Moments are kept in fp64 as count, mean and sum of squared deviations and merged by Chan's formula, never as E[x^2].
- Masked positions become exactly 0. No unmasked token, one, or equal ones give 0, never NaN.
- One collective of three numbers per rank, also on ranks without a token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ._checks import check_at_least, check_tokens, keep_unmasked
from ._group import Group, gather_rows

if TYPE_CHECKING:
    from jaxtyping import Float, Float64, Num
    from torch import Tensor


def whiten(
    values: Float[Tensor, " local"],
    mask: Num[Tensor, " local"] | None = None,
    *,
    group: Group = None,
    shift_mean: bool = True,
    epsilon: float = 1e-8,
) -> Float[Tensor, " local"]:
    """(x - mean) / sqrt(variance + epsilon), with the unbiased variance over the unmasked tokens of all ranks.

    Args:
        values: one per local token; every CP rank holds its own part, so the group spans DP x CP.
        mask: not 0 at tokens that count.
        group: ranks that pool their tokens, DP x CP of the last pipeline stage; None pools this rank's alone.
        shift_mean: False keeps the mean and changes only the spread around it.
        epsilon: added to the variance.

    Returns:
        Whitened values without graph.

    Raises:
        ValueError: shapes, dtypes or devices that differ, or a negative epsilon; before the collective.

    Source: Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.

    >>> from vime_cp import whiten
    >>> whiten(torch.tensor([1.0, 3.0, 99.0]), torch.tensor([1, 1, 0]))
    tensor([-0.7071,  0.7071,  0.0000])
    """
    check_tokens("whiten", mask=mask, values=values)
    check_at_least("whiten", "epsilon", epsilon, 0.0)
    kept = keep_unmasked(values.detach(), mask).to(torch.float64)
    count, mean, squares = _merge(gather_rows(_moments(kept, mask), group)).unbind()
    # One token gives 0 / 0, which like equal tokens is not above 0: there is no spread to scale.
    variance = squares / (count - 1)
    scale = torch.where(variance > 0, (variance + epsilon).rsqrt(), 1)
    whitened = (kept - mean) * scale
    if not shift_mean:
        whitened = whitened + mean
    return keep_unmasked(whitened, mask).to(values.dtype)


def _moments(values: Float64[Tensor, " local"], mask: Tensor | None) -> Float64[Tensor, "3"]:
    """Count, mean and sum of squared deviations of this rank's unmasked values, in two passes."""
    counted = torch.ones_like(values) if mask is None else (mask != 0).to(torch.float64)
    count = counted.sum()
    mean = values.sum() / count.clamp_min(1)
    return torch.stack([count, mean, (counted * (values - mean).square()).sum()])


def _merge(rows: Float64[Tensor, "ranks 3"]) -> Float64[Tensor, "3"]:
    """Moments of the pooled values from those of each rank."""
    count, mean, squares = rows.unbind(1)
    total = count.sum()
    pooled = (count * mean).sum() / total.clamp_min(1)
    return torch.stack([total, pooled, (squares + count * (mean - pooled).square()).sum()])
