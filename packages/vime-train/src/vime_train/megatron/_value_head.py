"""The critic's last layer: one number per token instead of logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor


class ValueHead(torch.nn.Module):
    """Takes the place of Megatron's output layer, on every TP rank alike; begins with zeros, so that values are 0.

    Every TP rank holds the whole hidden state, computes the same loss and the same gradient: nothing is reduced, and
    Megatron counts the weight once in the gradient's norm, as it does a norm's.
    """

    def __init__(self, hidden_size: int, *, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1, hidden_size, dtype=dtype))

    def forward(
        self,
        hidden: Float[Tensor, "tokens batch hidden"],
        weight: Tensor | None = None,
        runtime_gather_output: bool | None = None,
    ) -> tuple[Float[Tensor, "tokens batch 1"], None]:
        """Values, and the bias that Megatron's output layer would return; the other arguments are of that layer."""
        return F.linear(hidden, self.weight), None
