"""Discounted sums over the rest of a sequence, as a few matrix products instead of a loop over time.

With y_t = x_t + f y_{t+1}, a chunk of C steps is one product with the matrix f^(j - i), j >= i, and the chunks' first
values follow the same recursion with f^C: the function calls itself on a sequence C times shorter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

# Work per element grows with the chunk, passes over memory shrink with it; on CPUs 16 is the fastest, 32 and 64 near.
_CHUNK = 16


@torch.no_grad()
def discounted_suffix_sums(
    x: Float[Tensor, "batch time"], factor: float, *, chunk: int = _CHUNK
) -> Float[Tensor, "batch time"]:
    """y[:, t] = sum over s >= t of factor^(s - t) x[:, s]; ``0 <= factor <= 1``, no graph."""
    time = x.shape[1]
    if time <= chunk:
        return x @ _powers(factor, time, x)
    padded = F.pad(x, (0, -time % chunk)) if time % chunk else x
    blocks = padded.reshape(len(x), -1, chunk)
    sums = blocks @ _powers(factor, chunk, x)
    first = discounted_suffix_sums(sums[:, :, 0], factor**chunk, chunk=chunk)
    later = F.pad(first[:, 1:], (0, 1))
    decay = torch.pow(factor, torch.arange(chunk, 0, -1, dtype=torch.float64, device=x.device))
    return sums.addcmul_(later[:, :, None], decay.to(x.dtype)).flatten(1)[:, :time]


def _powers(factor: float, size: int, like: Tensor) -> Float[Tensor, "size size"]:
    """Matrix with factor^(j - i) at row j, column i, for j >= i; 0 elsewhere."""
    steps = torch.arange(size, dtype=torch.float64, device=like.device)
    distance = steps[:, None] - steps
    return torch.pow(factor, distance.clamp_min(0)).tril().to(like.dtype)
