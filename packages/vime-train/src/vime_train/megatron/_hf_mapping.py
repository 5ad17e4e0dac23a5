"""How Megatron's parameters are made of Hugging Face's, for Qwen3, Qwen3-MoE and Llama.

Each parameter is described by one *logical* tensor: the Hugging Face tensors joined so that cutting one axis into `tp`
equal pieces, and flattening each piece, gives the tensor-parallel shards. QKV interleaves per group of query heads,
`[groups, (heads per group + 2) * head_dim, hidden]`; gate and up are stacked, `[2, ffn, hidden]`, and cut along `ffn`.
Routers and experts are not cut: each expert is whole on the ranks that hold it.

Always true: `split(join(tensors)) == tensors`, bit for bit, and `unshard` of all shards is the logical tensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from vime_train.megatron._architecture import Architecture

Kind = Literal["plain", "qkv", "gate_up"]

_LAYER_PARTS: dict[str, tuple[tuple[str, ...], Kind, int | None]] = {
    "input_layernorm.weight": (("input_layernorm",), "plain", None),
    "self_attention.linear_qkv.weight": (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), "qkv", 0),
    "self_attention.q_layernorm.weight": (("self_attn.q_norm",), "plain", None),
    "self_attention.k_layernorm.weight": (("self_attn.k_norm",), "plain", None),
    "self_attention.linear_proj.weight": (("self_attn.o_proj",), "plain", 1),
    "pre_mlp_layernorm.weight": (("post_attention_layernorm",), "plain", None),
}
_DENSE_PARTS: dict[str, tuple[tuple[str, ...], Kind, int | None]] = {
    "mlp.linear_fc1.weight": (("mlp.gate_proj", "mlp.up_proj"), "gate_up", 1),
    "mlp.linear_fc2.weight": (("mlp.down_proj",), "plain", 1),
}
_EXPERT = "mlp.experts.local_experts."
# Transformer Engine's layers keep a norm inside the linear layer that follows it.
_FUSED_NAMES = {
    "self_attention.linear_qkv.layer_norm_weight": "input_layernorm.weight",
    "mlp.linear_fc1.layer_norm_weight": "pre_mlp_layernorm.weight",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightRule:
    """One Megatron parameter: its Hugging Face names, how they join, and the axis that tensor parallelism cuts."""

    hf_names: tuple[str, ...]
    shape: tuple[int, ...]
    kind: Kind
    shard_axis: int | None
    groups: int

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        """The logical tensor of the Hugging Face tensors."""
        if self.kind == "qkv":
            return torch.cat([x.reshape(self.groups, -1, x.shape[-1]) for x in tensors], dim=1)
        return torch.stack(list(tensors)) if self.kind == "gate_up" else tensors[0]

    def split(self, logical: Tensor) -> list[Tensor]:
        """The Hugging Face tensors of a logical tensor."""
        if self.kind == "plain":
            return [logical]
        if self.kind == "gate_up":
            return list(logical.unbind(0))
        rows, hidden = self.shape[1:]
        head_dim = (rows - self._query_rows) // 2
        return [x.reshape(-1, hidden) for x in torch.split(logical, [self._query_rows, head_dim, head_dim], dim=1)]

    def shard(self, logical: Tensor, rank: int, size: int) -> Tensor:
        """The part of one tensor-parallel rank, still shaped like the logical tensor."""
        return logical if self.shard_axis is None else logical.chunk(size, dim=self.shard_axis)[rank]

    def unshard(self, shards: Sequence[Tensor]) -> Tensor:
        """The logical tensor of all ranks' parameters, whatever shape Megatron gave them."""
        if self.shard_axis is None:
            return shards[0].reshape(self.shape)
        shape = list(self.shape)
        shape[self.shard_axis] //= len(shards)
        return torch.cat([x.reshape(shape) for x in shards], dim=self.shard_axis)

    @property
    def _query_rows(self) -> int:
        return self.shape[1] * self.query_heads // (self.query_heads + 2)

    query_heads: int = 1
    """Query heads per group; used by QKV only."""


def weight_rules(architecture: Architecture) -> dict[str, WeightRule]:
    """Every parameter of the whole model by its Megatron name with global layer numbers, in a fixed order."""
    vocabulary = (architecture.vocab_size, architecture.hidden_size)
    rules = {"embedding.word_embeddings.weight": _rule(architecture, ("model.embed_tokens",), "plain", 0, vocabulary)}
    for layer in range(architecture.num_layers):
        shapes = _layer_shapes(architecture)
        for name, (hf_parts, kind, axis) in _layer_parts(architecture, layer).items():
            if name.endswith(("q_layernorm.weight", "k_layernorm.weight")) and not architecture.qk_layernorm:
                continue
            hf_names = tuple(f"model.layers.{layer}.{part}" for part in hf_parts)
            shape = shapes[name]
            rules[f"decoder.layers.{layer}.{name}"] = _rule(architecture, hf_names, kind, axis, shape)
    rules["decoder.final_layernorm.weight"] = _rule(architecture, ("model.norm",), "plain", None, vocabulary[1:])
    if architecture.value_head:
        rules["output_layer.weight"] = _rule(architecture, ("score",), "plain", None, (1, architecture.hidden_size))
        return rules
    head = "model.embed_tokens" if architecture.tied_head else "lm_head"
    rules["output_layer.weight"] = _rule(architecture, (head,), "plain", 0, vocabulary)
    return rules


def global_name(name: str, *, first_layer: int, first_expert: int = 0) -> str:
    """The name of a chunk's parameter with the whole model's numbers, without Transformer Engine's fusing."""
    if not name.startswith("decoder.layers."):
        return name
    _, _, number, part = name.split(".", 3)
    part = _FUSED_NAMES.get(part, part)
    if part.startswith(_EXPERT):
        expert, _, rest = part.removeprefix(_EXPERT).partition(".")
        part = f"{_EXPERT}{int(expert) + first_expert}.{rest}"
    return f"decoder.layers.{int(number) + first_layer}.{part}"


def layer_of(name: str) -> int | None:
    """The number of the layer that a parameter of the whole model belongs to, if it belongs to one."""
    return int(name.split(".")[2]) if name.startswith("decoder.layers.") else None


def expert_of(name: str) -> int | None:
    """The number of the expert that a parameter belongs to, if it belongs to one."""
    _, found, rest = name.partition(_EXPERT)
    return int(rest.partition(".")[0]) if found else None


def hf_weight_names(rules: Mapping[str, WeightRule]) -> set[str]:
    """Every tensor that a Hugging Face directory of this model holds."""
    return {name for rule in rules.values() for name in rule.hf_names}


def _rule(
    architecture: Architecture, parts: tuple[str, ...], kind: Kind, axis: int | None, shape: tuple[int, ...]
) -> WeightRule:
    return WeightRule(
        hf_names=tuple(f"{part}.weight" for part in parts),
        shape=shape,
        kind=kind,
        shard_axis=axis,
        groups=architecture.num_query_groups,
        query_heads=architecture.heads_per_group,
    )


def _layer_parts(architecture: Architecture, layer: int) -> dict[str, tuple[tuple[str, ...], Kind, int | None]]:
    """The parameters of a layer by their Megatron name."""
    experts = architecture.experts
    if experts is None or not experts.layers[layer]:
        return _LAYER_PARTS | _DENSE_PARTS
    parts: dict[str, tuple[tuple[str, ...], Kind, int | None]]
    parts = {**_LAYER_PARTS, "mlp.router.weight": (("mlp.gate",), "plain", None)}
    for expert in range(experts.count):
        for name, (hf_parts, kind, _) in _DENSE_PARTS.items():
            hf_names = tuple(part.replace("mlp.", f"mlp.experts.{expert}.") for part in hf_parts)
            parts[name.replace("mlp.", f"{_EXPERT}{expert}.")] = (hf_names, kind, None)
    return parts


def _layer_shapes(architecture: Architecture) -> dict[str, tuple[int, ...]]:
    hidden, ffn, dim = architecture.hidden_size, architecture.ffn_hidden_size, architecture.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "self_attention.linear_qkv.weight": (
            architecture.num_query_groups,
            (architecture.heads_per_group + 2) * dim,
            hidden,
        ),
        "self_attention.q_layernorm.weight": (dim,),
        "self_attention.k_layernorm.weight": (dim,),
        "self_attention.linear_proj.weight": (hidden, architecture.num_attention_heads * dim),
        "pre_mlp_layernorm.weight": (hidden,),
        "mlp.linear_fc1.weight": (2, ffn, hidden),
        "mlp.linear_fc2.weight": (hidden, ffn),
    }
    experts = architecture.experts
    if experts is not None:
        shapes["mlp.router.weight"] = (experts.count, hidden)
        for expert in range(experts.count):
            shapes[f"{_EXPERT}{expert}.linear_fc1.weight"] = (2, experts.ffn_hidden_size, hidden)
            shapes[f"{_EXPERT}{expert}.linear_fc2.weight"] = (hidden, experts.ffn_hidden_size)
    return shapes
