"""Make a small Qwen3 model, dense or with experts, as a Hugging Face directory: config, weights, tokenizer. No torch.

Always true: the bytes depend on the sizes and the seed alone; the LM head is untied (vLLM's CPU build serves a stale
head after a reload when it is tied).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from vime_train.config import ModelSection
    from vime_train.data._protocol import Tokenizer

RMS_NORM_EPSILON = 1e-6
ROPE_THETA = 10000.0


def hf_config(model: ModelSection, tokenizer: Tokenizer) -> dict[str, object]:
    """The `config.json` of a Qwen3 model of these sizes, or of a Qwen3-MoE model."""
    return {
        **_kind(model),
        "vocab_size": tokenizer.vocab_size,
        "hidden_size": model.hidden_size,
        "intermediate_size": model.intermediate_size,
        "num_hidden_layers": model.num_hidden_layers,
        "num_attention_heads": model.num_attention_heads,
        "num_key_value_heads": model.num_key_value_heads,
        "head_dim": model.head_dim,
        "max_position_embeddings": model.max_position_embeddings,
        "rms_norm_eps": RMS_NORM_EPSILON,
        "rope_theta": ROPE_THETA,
        "rope_parameters": {"rope_theta": ROPE_THETA, "rope_type": "default"},
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "dtype": "float32",
        "torch_dtype": "float32",
    }


def _kind(model: ModelSection) -> dict[str, object]:
    if model.num_experts is None:
        return {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
    return {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "num_experts": model.num_experts,
        "num_experts_per_tok": model.num_experts_per_tok,
        "moe_intermediate_size": model.moe_intermediate_size,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


def weight_shapes(model: ModelSection, vocab_size: int) -> dict[str, tuple[int, ...]]:
    """Name and shape of every weight; a one-dimensional one is a norm."""
    hidden, heads = model.hidden_size, model.num_attention_heads
    query, key = heads * model.head_dim, model.num_key_value_heads * model.head_dim
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab_size, hidden)}
    for layer in range(model.num_hidden_layers):
        prefix = f"model.layers.{layer}."
        shapes |= {
            prefix + "input_layernorm.weight": (hidden,),
            prefix + "self_attn.q_proj.weight": (query, hidden),
            prefix + "self_attn.k_proj.weight": (key, hidden),
            prefix + "self_attn.v_proj.weight": (key, hidden),
            prefix + "self_attn.o_proj.weight": (hidden, query),
            prefix + "self_attn.q_norm.weight": (model.head_dim,),
            prefix + "self_attn.k_norm.weight": (model.head_dim,),
            prefix + "post_attention_layernorm.weight": (hidden,),
        }
        shapes |= {f"{prefix}mlp.{name}": shape for name, shape in _mlp(model).items()}
    return shapes | {"model.norm.weight": (hidden,), "lm_head.weight": (vocab_size, hidden)}


def _mlp(model: ModelSection) -> dict[str, tuple[int, ...]]:
    """What follows attention in a layer: one network, or a router and its experts."""
    if model.num_experts is None:
        return _network(model.hidden_size, model.intermediate_size)
    expert = _network(model.hidden_size, model.moe_intermediate_size)
    experts = range(model.num_experts)
    shapes = {f"experts.{number}.{name}": shape for number in experts for name, shape in expert.items()}
    return {"gate.weight": (model.num_experts, model.hidden_size), **shapes}


def _network(hidden: int, columns: int) -> dict[str, tuple[int, ...]]:
    return {
        "gate_proj.weight": (columns, hidden),
        "up_proj.weight": (columns, hidden),
        "down_proj.weight": (hidden, columns),
    }


def make_model(directory: str, model: ModelSection, tokenizer: Tokenizer, *, seed: int) -> None:
    """Write the model with weights drawn from N(0, init_std^2), norms at 1, and the tokenizer's files."""
    from safetensors.numpy import save_file

    generator = np.random.default_rng(seed)
    weights: dict[str, np.ndarray] = {}
    for name, shape in weight_shapes(model, tokenizer.vocab_size).items():
        if len(shape) == 1:
            weights[name] = np.ones(shape, np.float32)
        else:
            weights[name] = generator.normal(0.0, model.init_std, shape).astype(np.float32)
    path = Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    (path / "config.json").write_text(json.dumps(hf_config(model, tokenizer), indent=2) + "\n", encoding="utf-8")
    tokenizer.save(directory)
