"""The forward FLOPs of one sample, from a model's Hugging Face config.

Laws
- A matmul of [m, k] by [k, n] is 2*m*k*n FLOPs; every matmul of the model is counted and nothing else.
- Attention is causal: of the s*s query-key pairs of a sample s*s/2 are counted, for scores and for values alike.
  A sliding window of w tokens keeps s*w - w*w/2 pairs once s exceeds w.
- All arithmetic is on integers, so the cost is exact at every length and the same on every machine.

Per layer, with hidden size h, n query heads, g key-value heads and head size d:
`2*s*h*n*d` (query) + `4*s*h*g*d` (key, value) + `2*s*n*d*h` (output) + `2*n*d*s*s` (scores and values) + `6*s*h*f`
(gated MLP), and `2*s*h*V` once for the head. A tied head shares weights with the embedding, not work: same cost. Norms,
 rotary embeddings, softmax and the embedding lookup are below 1% and left out.

Sources: Narayanan et al., SC 2021, appendix (dense, halved here for the causal mask); Ainslie et al., arXiv:2305.13245
(grouped key-value heads); DeepSeek-AI, arXiv:2405.04434 section 2.1 (multi-head latent attention); Jiang et al.,
arXiv:2401.04088 (mixture of experts); Child et al., arXiv:1904.10509 (attention within a window).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from vime_schedule._costs._hf_config import read_model_shape


@dataclass(frozen=True, slots=True, kw_only=True)
class FlopsCost:
    """Forward FLOPs of a sample: linear in its tokens, quadratic in attention, linear again beyond a window.

    Args:
        token_flops: per token, over all layers and the head.
        full_attention_flops: per squared token, over the layers that attend to everything before.
        window_attention_flops: per squared token while the sample fits the window, over the sliding layers.
        window: tokens a sliding layer sees; None without sliding layers.

    >>> config = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=32)
    >>> FlopsCost.from_hf_config(config)(10)
    19520
    """

    token_flops: int
    full_attention_flops: int
    window_attention_flops: int = 0
    window: int | None = None

    @classmethod
    def from_hf_config(cls, config: Mapping[str, object]) -> Self:
        """Count a model from the dict in its `config.json` (or `config.to_dict()`).

        Understands dense models, grouped key-value heads, multi-head latent attention, mixtures of experts with shared
        experts and dense layers between, sliding windows, and language models nested under `text_config`.

        Raises:
            ScheduleError: a field is missing or not a whole number, or the model has a part that would be counted wrong
                (an unknown layer type, chunked attention); the field is named.
        """
        shape = read_model_shape(config)
        full = sum(layer.attention_flops for layer in shape.layers if layer.window is None)
        sliding = sum(layer.attention_flops for layer in shape.layers if layer.window is not None)
        return cls(
            token_flops=sum(layer.token_flops for layer in shape.layers) + shape.head_flops,
            full_attention_flops=full,
            window_attention_flops=sliding,
            window=shape.window,
        )

    def __call__(self, length: int) -> int:
        """Return the forward FLOPs of one sample of `length` tokens."""
        flops = length * (self.token_flops + self.full_attention_flops * length)
        if self.window is None:
            return flops
        seen = min(length, self.window)
        return flops + self.window_attention_flops * seen * (2 * length - seen)
