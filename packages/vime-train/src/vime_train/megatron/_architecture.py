"""The shape of a decoder, read from a Hugging Face `config.json`. Imports neither torch nor Megatron.

Always true: a model that this file accepts is computed by `_model` exactly as transformers computes it; every setting
that would change the function and is not known here is refused by name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vime_train.megatron._experts import Experts, check_expert_layout, read_experts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vime_train.config import LayoutSection

Family = Literal["qwen3", "llama"]
_FAMILIES: dict[str, Family] = {
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3",
    "LlamaForCausalLM": "llama",
}
_WITH_EXPERTS = ("Qwen3MoeForCausalLM",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama3Scaling:
    """How Llama 3 stretches the slow frequencies of RoPE beyond the length it was first trained on."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Sizes and constants of one decoder with grouped-query attention, RMSNorm, SwiGLU and RoPE.

    `ffn_hidden_size` is that of its dense layers, if it has any; `experts` is None where all of them are.
    """

    family: Family
    num_layers: int
    hidden_size: int
    ffn_hidden_size: int
    num_attention_heads: int
    num_query_groups: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    norm_epsilon: float
    rope_theta: float
    rope_scaling: Llama3Scaling | None
    tied_head: bool
    experts: Experts | None = None
    value_head: bool = False
    """Whether the last layer gives one number per token, as a critic's does, instead of logits."""

    @property
    def qk_layernorm(self) -> bool:
        """Whether queries and keys are normalised per head."""
        return self.family == "qwen3"

    @property
    def heads_per_group(self) -> int:
        """Query heads that share one key and value head."""
        return self.num_attention_heads // self.num_query_groups


def read_architecture(directory: str) -> Architecture:
    """Read the model of a Hugging Face directory.

    Raises:
        ValueError: the directory has no `config.json`, or a model or setting that the trainer does not compute.
    """
    path = Path(directory) / "config.json"
    if not path.is_file():
        raise ValueError(f"read_architecture: {path} does not exist: give a Hugging Face model directory")
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    names = config.get("architectures") or ["(none)"]
    if names[0] not in _FAMILIES:
        raise ValueError(
            f"read_architecture: {path} names the architecture {names[0]!r}: the trainer knows {sorted(_FAMILIES)}"
        )
    _refuse_unknown_settings(path, config)
    theta, scaling = _rope(path, config)
    return Architecture(
        family=_FAMILIES[names[0]],
        num_layers=config["num_hidden_layers"],
        hidden_size=config["hidden_size"],
        ffn_hidden_size=config["intermediate_size"],
        num_attention_heads=config["num_attention_heads"],
        num_query_groups=config.get("num_key_value_heads") or config["num_attention_heads"],
        head_dim=config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"],
        vocab_size=config["vocab_size"],
        max_position_embeddings=config["max_position_embeddings"],
        norm_epsilon=config["rms_norm_eps"],
        rope_theta=theta,
        rope_scaling=scaling,
        tied_head=config.get("tie_word_embeddings", False),
        experts=read_experts(path, config) if names[0] in _WITH_EXPERTS else None,
    )


def check_layout(architecture: Architecture, layout: LayoutSection) -> None:
    """Refuse a layout that this model cannot be cut into.

    Raises:
        ValueError: the number that does not divide, and the values that would.
    """
    cut = [
        ("key and value heads", architecture.num_query_groups),
        ("vocabulary entries", architecture.vocab_size),
    ]
    if architecture.experts is None or not architecture.experts.everywhere:
        cut.append(("FFN columns", architecture.ffn_hidden_size))
    for name, size in cut:
        if size % layout.tp:
            fits = [tp for tp in range(1, layout.tp) if size % tp == 0]
            raise ValueError(
                f"layout: tp={layout.tp} does not divide the model's {size} {name}: set layout.tp to one of {fits}"
            )
    chunks = layout.pp * layout.vpp
    if architecture.num_layers % chunks:
        raise ValueError(
            f"layout: pp={layout.pp} x vpp={layout.vpp} = {chunks} stages do not divide the model's "
            f"{architecture.num_layers} layers: choose pp * vpp among the divisors of {architecture.num_layers}"
        )
    if layout.vpp > 1 and layout.pp == 1:
        raise ValueError(f"layout: vpp={layout.vpp} interleaves pipeline stages but pp=1: set layout.pp to 2 or more")
    check_expert_layout(architecture.experts, layout)


def _refuse_unknown_settings(path: Path, config: Mapping[str, Any]) -> None:
    for name, known in (("attention_bias", False), ("mlp_bias", False), ("hidden_act", "silu")):
        if config.get(name, known) != known:
            raise ValueError(
                f"read_architecture: {path} has {name}={config[name]!r}: the trainer computes {known!r} only"
            )
    if config.get("use_sliding_window") or set(config.get("layer_types") or ()) - {"full_attention"}:
        raise ValueError(
            f"read_architecture: {path} asks for sliding-window attention: the trainer computes full attention only"
        )


def _rope(path: Path, config: Mapping[str, Any]) -> tuple[float, Llama3Scaling | None]:
    """Base and scaling of RoPE, from `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling` (4)."""
    parameters = config.get("rope_parameters") or {
        **(config.get("rope_scaling") or {}),
        "rope_theta": config.get("rope_theta"),
    }
    kind = parameters.get("rope_type") or parameters.get("type") or "default"
    theta = parameters.get("rope_theta") or config.get("rope_theta") or 10000.0
    if kind == "default":
        return theta, None
    if kind != "llama3":
        raise ValueError(
            f"read_architecture: {path} has RoPE of type {kind!r}: the trainer computes 'default' and 'llama3'"
        )
    return theta, Llama3Scaling(
        factor=parameters["factor"],
        low_freq_factor=parameters["low_freq_factor"],
        high_freq_factor=parameters["high_freq_factor"],
        original_max_position_embeddings=parameters["original_max_position_embeddings"],
    )
