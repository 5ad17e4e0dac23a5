"""Numbers of whole sequences from the tokens that each rank holds, in one collective for a micro-batch.

Laws
- A sequence's sum does not depend on how it was cut; every rank of the CP group gets all of them.
- The gradient is that of partial losses: each rank's loss is its share of one sum, and every rank runs backward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ._collectives import Gradient, all_reduce_sum
from ._context_parallel import ContextParallel
from ._reduction import sample_sums

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float, Int, Num
    from torch import Tensor


def sequence_sums(
    columns: Sequence[Float[Tensor, " local"]],
    mask: Num[Tensor, " local"] | None,
    sample_index: Int[Tensor, " local"],
    num_samples: int,
    cp: ContextParallel | None,
    *,
    gradient: Gradient,
) -> tuple[Float[Tensor, " samples"], ...]:
    """Masked sums of several columns per sample, and last the sum of the mask."""
    mask = torch.ones_like(columns[0]) if mask is None else mask
    sums = [sample_sums(column, mask, sample_index, num_samples) for column in columns]
    counts = sample_sums(torch.ones_like(columns[0]), mask, sample_index, num_samples)
    total = all_reduce_sum(torch.stack([*sums, counts]), cp if cp is not None else ContextParallel(), gradient=gradient)
    return tuple(total.unbind())


def to_tokens(per_sample: Float[Tensor, " samples"], sample_index: Int[Tensor, " local"]) -> Float[Tensor, " local"]:
    """Each sample's number at each of its positions, and 0 at padding."""
    return torch.cat([per_sample, per_sample.new_zeros(1)])[sample_index]
