"""RoPE frequencies: base theta, and Llama 3's stretch of the slow ones (as in transformers' `llama3` type)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from vime_train.megatron._architecture import Architecture, Llama3Scaling


def inverse_frequencies(architecture: Architecture) -> Float[Tensor, " half"]:
    """Radians per position of each pair of coordinates, fp32."""
    exponents = torch.arange(0, architecture.head_dim, 2, dtype=torch.int64).float() / architecture.head_dim
    frequencies = 1.0 / (architecture.rope_theta**exponents)
    scaling = architecture.rope_scaling
    return frequencies if scaling is None else _stretch(frequencies, scaling)


def _stretch(frequencies: Tensor, scaling: Llama3Scaling) -> Tensor:
    """Divide slow frequencies by `factor`, keep fast ones, and blend in between."""
    turns = scaling.original_max_position_embeddings * frequencies / (2 * math.pi)
    blend = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    blend = blend.clamp(0, 1)
    return (1 - blend) * frequencies / scaling.factor + blend * frequencies
