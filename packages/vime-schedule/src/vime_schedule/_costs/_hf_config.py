"""Read from a Hugging Face config what each layer of its language model computes per token and per squared token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vime_schedule._costs._hf_fields import ConfigReader
from vime_schedule._costs._hf_moe import is_expert_layer, mlp_flops
from vime_schedule._costs._hf_window import read_windows


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """FLOPs of one layer: `token_flops * s + attention_flops * s**2`, the latter within `window` if there is one."""

    token_flops: int
    attention_flops: int
    window: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """All layers, the output head, and the one window that sliding layers share."""

    layers: tuple[LayerShape, ...]
    head_flops: int
    window: int | None


def read_model_shape(config: Mapping[str, Any]) -> ModelShape:
    """Return what each layer of the language model in `config` computes."""
    reader = ConfigReader.of_language_model(config)
    hidden = reader.size("hidden_size")
    count = reader.size("num_hidden_layers")
    projection, attention = _latent_attention(reader) if reader.has("kv_lora_rank") else _grouped_attention(reader)
    windows = read_windows(reader, count)
    layers = tuple(
        LayerShape(
            token_flops=projection + mlp_flops(reader, expert=is_expert_layer(reader, index)),
            attention_flops=attention,
            window=windows[index],
        )
        for index in range(count)
    )
    window = next((window for window in windows if window is not None), None)
    return ModelShape(layers=layers, head_flops=2 * hidden * reader.size("vocab_size"), window=window)


def _grouped_attention(reader: ConfigReader) -> tuple[int, int]:
    """Return (FLOPs per token, FLOPs per squared token) of multi-head, grouped or multi-query attention."""
    hidden, heads = reader.size("hidden_size"), reader.size("num_attention_heads")
    groups = reader.size("num_key_value_heads", default=heads)
    head = reader.size("head_dim", default=max(1, hidden // heads))
    projection = 2 * hidden * head * (heads + 2 * groups) + 2 * heads * head * hidden
    return projection, 2 * heads * head


def _latent_attention(reader: ConfigReader) -> tuple[int, int]:
    """Return the same for multi-head latent attention as training runs it: keys and values decompressed per head."""
    hidden, heads = reader.size("hidden_size"), reader.size("num_attention_heads")
    rank, rope = reader.size("kv_lora_rank"), reader.size("qk_rope_head_dim")
    nope, value = reader.size("qk_nope_head_dim"), reader.size("v_head_dim")
    query_width = heads * (nope + rope)
    if reader.has("q_lora_rank"):
        query_rank = reader.size("q_lora_rank")
        query = 2 * hidden * query_rank + 2 * query_rank * query_width
    else:
        query = 2 * hidden * query_width
    key_value = 2 * hidden * (rank + rope) + 2 * rank * heads * (nope + value)
    return query + key_value + 2 * heads * value * hidden, heads * (nope + rope + value)
