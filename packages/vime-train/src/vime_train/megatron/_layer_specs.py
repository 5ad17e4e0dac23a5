"""What a stage's layers are made of: Megatron's local modules or Transformer Engine's, dense or with experts.

Always true: local layers attend with `PackedAttention`; a model without experts has the same layer everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from megatron.core.models.gpt.gpt_layer_specs import (
    get_gpt_decoder_block_spec,
    get_gpt_layer_local_spec,
    get_gpt_layer_with_transformer_engine_spec,
)

from vime_train.megatron._attention import PackedAttention

if TYPE_CHECKING:
    from megatron.core.transformer import TransformerConfig

    from vime_train.megatron._architecture import Architecture


def layer_specs(architecture: Architecture, config: TransformerConfig, *, stage: int, transformer_engine: bool) -> Any:
    """What Megatron's `GPTModel` takes: one layer's spec for all, or those of this stage's layers in order."""
    if architecture.experts is None:
        return _dense(architecture, transformer_engine=transformer_engine)
    interleaved = config.virtual_pipeline_model_parallel_size is not None
    block = get_gpt_decoder_block_spec(
        config,
        use_transformer_engine=transformer_engine,
        normalization="RMSNorm",
        vp_stage=stage if interleaved else None,
    )
    if not transformer_engine:
        for layer in block.layer_specs:
            layer.submodules.self_attention.submodules.core_attention = PackedAttention
    return block


def _dense(architecture: Architecture, *, transformer_engine: bool) -> Any:
    if transformer_engine:
        return get_gpt_layer_with_transformer_engine_spec(qk_layernorm=architecture.qk_layernorm)
    spec = get_gpt_layer_local_spec(qk_layernorm=architecture.qk_layernorm, normalization="RMSNorm")
    spec.submodules.self_attention.submodules.core_attention = PackedAttention
    return spec
