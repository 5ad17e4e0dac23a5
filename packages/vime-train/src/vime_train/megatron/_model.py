"""The Megatron-core model of an `Architecture`: one chunk per virtual stage of this rank, wrapped for training.

Always true: the model's function is that of transformers' model of the same directory. In bf16 on CUDA the layers are
Transformer Engine's where it is installed, everywhere else Megatron's local ones with `PackedAttention`; weights,
losses and schedules are the same.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from megatron.core import tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.module import Float16Module

from vime_train.config import data_parallel_fields, transformer_fields
from vime_train.megatron._architecture import Llama3Scaling
from vime_train.megatron._expert_layer import adopt_expert_layers
from vime_train.megatron._layer_specs import layer_specs
from vime_train.megatron._value_head import ValueHead

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vime_train.config import RunConfig
    from vime_train.megatron._architecture import Architecture
    from vime_train.megatron._groups import Groups


# Megatron's RoPE takes the factor from its caller and has these constants built in.
_MEGATRON_ROPE_SCALING = Llama3Scaling(
    factor=1.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChunks:
    """This rank's part of the model.

    `wrapped` chunks train (they reduce gradients); `bare` ones are the same chunks without wrappers, for weights.
    `uses_transformer_engine` says which layers they are made of; every rank's share of a micro-batch must be padded to
    `pad_multiple` (the TP size where TP ranks share tokens: under sequence parallelism, and in layers of experts).
    In layers of experts this rank has `experts_per_rank` of them, from `first_expert` on.
    """

    wrapped: list[DistributedDataParallel] | list[torch.nn.Module]
    bare: list[GPTModel]
    dtype: torch.dtype
    uses_transformer_engine: bool
    pad_multiple: int
    first_expert: int = 0
    experts_per_rank: int = 0


def build_model(architecture: Architecture, groups: Groups, config: RunConfig, *, trained: bool = True) -> ModelChunks:
    """Build the chunks with weights that are not yet set: `_hf_weights` fills them.

    A model that is not `trained` has neither gradients nor a wrapper that reduces them.
    """
    on_gpu = groups.device.type == "cuda"
    if on_gpu:
        tensor_parallel.model_parallel_cuda_manual_seed(config.seed)
    transformer = _transformer_config(architecture, groups, config)
    transformer_engine = on_gpu and _transformer_engine_computes(architecture, transformer)
    if transformer.sequence_parallel and not transformer_engine:
        raise ValueError(
            "build_model: megatron.sequence_parallel is true but only Transformer Engine's layers compute it: "
            "install transformer_engine on a CUDA machine, or leave sequence_parallel out"
        )
    bare = [
        _chunk(architecture, groups, transformer, stage, transformer_engine=transformer_engine).to(groups.device)
        for stage in range(groups.layout.vpp)
    ]
    experts_per_rank = architecture.experts.count // groups.layout.ep if architecture.experts is not None else 0
    typed = [Float16Module(transformer, chunk) for chunk in bare] if transformer.bf16 else bare
    return ModelChunks(
        wrapped=_reducing(typed, transformer, config) if trained else [chunk.requires_grad_(False) for chunk in typed],
        bare=bare,
        dtype=transformer.params_dtype,
        uses_transformer_engine=transformer_engine,
        pad_multiple=groups.layout.tp if transformer.sequence_parallel or architecture.experts is not None else 1,
        first_expert=groups.ep_rank * experts_per_rank,
        experts_per_rank=experts_per_rank,
    )


def _reducing(
    chunks: Sequence[torch.nn.Module], transformer: TransformerConfig, config: RunConfig
) -> list[DistributedDataParallel]:
    reduction = DistributedDataParallelConfig(
        **{"grad_reduce_in_fp32": True, "use_distributed_optimizer": True, **data_parallel_fields(config)}
    )
    return [
        DistributedDataParallel(transformer, reduction, chunk, disable_bucketing=stage > 0)
        for stage, chunk in enumerate(chunks)
    ]


def _transformer_engine_computes(architecture: Architecture, transformer: TransformerConfig) -> bool:
    """Whether Transformer Engine is there and fits: its packed attention wants bf16, its RoPE one kind of scaling."""
    installed = importlib.util.find_spec("transformer_engine") is not None
    scaling = architecture.rope_scaling
    same_rope = scaling is None or replace(scaling, factor=1.0) == _MEGATRON_ROPE_SCALING
    return installed and transformer.bf16 and same_rope


def _transformer_config(architecture: Architecture, groups: Groups, config: RunConfig) -> TransformerConfig:
    """Megatron's configuration: the model's, the layout's, then what `[megatron]` says in Megatron's own words."""
    native = transformer_fields(config)
    dtype = torch.bfloat16 if native.get("bf16") else torch.float32
    ours = {
        **_model_fields(architecture),
        **_layout_fields(groups, config),
        **_expert_fields(architecture, groups, config),
        "params_dtype": dtype,
        "pipeline_dtype": dtype,
        "finalize_model_grads_func": finalize_model_grads,
        # Not `perform_initialization=False`: that also leaves out the marks by which Megatron tells shards from copies,
        # and the gradient norm under TP would miss every shard but the first.
        "init_method": _leave,
        "output_layer_init_method": _leave,
        "embedding_init_method": _leave,
        "use_cpu_initialization": groups.device.type == "cpu",
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "bias_activation_fusion": False,
        "masked_softmax_fusion": False,
        "gradient_accumulation_fusion": False,
        "apply_rope_fusion": False,
    }
    return TransformerConfig(**{**ours, **native})


def _model_fields(architecture: Architecture) -> dict[str, Any]:
    return {
        "num_layers": architecture.num_layers,
        "hidden_size": architecture.hidden_size,
        "ffn_hidden_size": architecture.ffn_hidden_size,
        "num_attention_heads": architecture.num_attention_heads,
        "num_query_groups": architecture.num_query_groups,
        "kv_channels": architecture.head_dim,
        "layernorm_epsilon": architecture.norm_epsilon,
        "qk_layernorm": architecture.qk_layernorm,
        "normalization": "RMSNorm",
        "gated_linear_unit": True,
        "activation_func": torch.nn.functional.silu,
        "add_bias_linear": False,
    }


def _layout_fields(groups: Groups, config: RunConfig) -> dict[str, Any]:
    layout = groups.layout
    interleaved = layout.vpp > 1
    return {
        "tensor_model_parallel_size": layout.tp,
        "pipeline_model_parallel_size": layout.pp,
        "virtual_pipeline_model_parallel_size": layout.vpp if interleaved else None,
        "microbatch_group_size_per_vp_stage": layout.microbatch_group_size_per_vp_stage or layout.pp,
        "context_parallel_size": layout.cp,
        "calculate_per_token_loss": config.train.calculate_per_token_loss,
        # At PP 2 both neighbours of a stage are one rank, and batched messages (shapes too) would be swapped silently.
        "overlap_p2p_comm": interleaved,
        "batch_p2p_comm": not interleaved,
        "variable_seq_lengths": layout.pp > 1 and not interleaved,
        "moe_token_dispatcher_type": "alltoall",  # the default refuses variable lengths, with or without experts
    }


def _expert_fields(architecture: Architecture, groups: Groups, config: RunConfig) -> dict[str, Any]:
    """Experts as transformers computes them: the router in fp32, no token dropped, each expert whole on its rank."""
    experts = architecture.experts
    if experts is None:
        return {}
    return {
        "num_moe_experts": experts.count,
        "moe_ffn_hidden_size": experts.ffn_hidden_size,
        "moe_layer_freq": [int(has_experts) for has_experts in experts.layers],
        "moe_router_topk": experts.per_token,
        "moe_router_pre_softmax": not experts.normalised,
        "moe_router_dtype": "fp32",
        "moe_router_load_balancing_type": "aux_loss",
        "moe_aux_loss_coeff": config.train.router_aux_loss_coefficient,
        "expert_model_parallel_size": groups.layout.ep,
        "expert_tensor_parallel_size": 1,
    }


def _leave(weight: torch.Tensor) -> torch.Tensor:
    """Initialise nothing: every weight is loaded."""
    return weight


def _chunk(
    architecture: Architecture, groups: Groups, config: TransformerConfig, stage: int, *, transformer_engine: bool
) -> GPTModel:
    layout = groups.layout
    scaling = architecture.rope_scaling
    chunk = GPTModel(
        config,
        layer_specs(architecture, config, stage=stage, transformer_engine=transformer_engine),
        architecture.vocab_size,
        architecture.max_position_embeddings,
        pre_process=groups.pp_rank == 0 and stage == 0,
        post_process=groups.is_last_stage and stage == layout.vpp - 1,
        parallel_output=True,
        share_embeddings_and_output_weights=architecture.tied_head,
        position_embedding_type="rope" if transformer_engine else "none",
        rotary_base=architecture.rope_theta,
        rope_scaling=scaling is not None,
        rope_scaling_factor=scaling.factor if scaling is not None else 1.0,
        vp_stage=stage if layout.vpp > 1 else None,
    )
    adopt_expert_layers(chunk)
    if architecture.value_head and chunk.post_process:
        chunk.output_layer = ValueHead(architecture.hidden_size, dtype=config.params_dtype)
    return chunk
