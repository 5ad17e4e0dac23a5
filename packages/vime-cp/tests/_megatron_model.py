"""A small fp64 GPTModel of the installed Megatron-core whose weights do not depend on the layout, and its gradients."""

from __future__ import annotations

import re
import zlib
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler

VOCAB, LAYERS, HIDDEN = 16, 4, 16


class GatherSequence(torch.autograd.Function):
    """All ranks' keys or values; their losses are partial, so the gradients are summed."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad.chunk(dist.get_world_size(ctx.group))[dist.get_rank(ctx.group)], None


class MaskedAttention(torch.nn.Module):
    """Attention of this rank's queries to all ranks' keys, as a mask ``[local, total]`` allows."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def forward(self, query: Any, key: Any, value: Any, attention_mask: Any, **_: Any) -> torch.Tensor:
        local = query.shape[0]
        query, key, value = (x.reshape(local, -1, x.shape[-1]) for x in (query, key, value))
        group = mpu.get_context_parallel_group()
        key, value = GatherSequence.apply(key, group), GatherSequence.apply(value, group)
        query, key, value = (x.transpose(0, 1)[None] for x in (query, key, value))
        out = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=attention_mask)
        return out[0].transpose(0, 1).reshape(local, 1, -1)


def build_model(*, calculate_per_token_loss: bool, packed_rotary: bool, ddp: bool) -> list[Any]:
    """The chunks of this rank, wrapped in Megatron's DDP unless ``ddp`` is off."""
    tp, pp = mpu.get_tensor_model_parallel_world_size(), mpu.get_pipeline_model_parallel_world_size()
    vpp = mpu.get_virtual_pipeline_model_parallel_world_size()
    config = TransformerConfig(
        num_layers=LAYERS,
        hidden_size=HIDDEN,
        ffn_hidden_size=2 * HIDDEN,
        num_attention_heads=2,
        add_bias_linear=False,
        normalization="LayerNorm",
        params_dtype=torch.float64,
        pipeline_dtype=torch.float64,
        use_cpu_initialization=True,
        tensor_model_parallel_size=tp,
        pipeline_model_parallel_size=pp,
        virtual_pipeline_model_parallel_size=vpp,
        context_parallel_size=mpu.get_context_parallel_world_size(),
        variable_seq_lengths=True,
        moe_token_dispatcher_type="alltoall",  # the only one that variable lengths allow, also without experts
        overlap_p2p_comm=vpp is not None,
        batch_p2p_comm=vpp is None,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        apply_rope_fusion=False,
        persist_layer_norm=False,
        gradient_accumulation_fusion=False,
        calculate_per_token_loss=calculate_per_token_loss,
        finalize_model_grads_func=finalize_model_grads,
        deallocate_pipeline_outputs=True,
    )
    spec = get_gpt_layer_local_spec()
    spec.submodules.self_attention.submodules.core_attention = MaskedAttention
    chunks = []
    for stage in range(vpp or 1):
        where = {} if vpp is None else {"ignore_virtual": False, "vp_stage": stage}
        chunk = GPTModel(
            config,
            spec,
            vocab_size=VOCAB,
            max_sequence_length=256,
            pre_process=mpu.is_pipeline_first_stage(**where),
            post_process=mpu.is_pipeline_last_stage(**where),
            parallel_output=True,
            share_embeddings_and_output_weights=False,
            position_embedding_type="rope" if packed_rotary else "learned_absolute",
            vp_stage=None if vpp is None else stage,
        ).double()  # the norms of the local layer spec are fp32 whatever params_dtype says
        for name, param in chunk.named_parameters():
            with torch.no_grad():
                param.copy_(shard(weight(global_name(chunk, name), param), param))
        if ddp and calculate_per_token_loss and chunk.post_process:
            add_auxiliary_loss(chunk, config)
        chunks.append(chunk)
    if ddp:
        settings = DistributedDataParallelConfig(use_distributed_optimizer=False, overlap_grad_reduce=False)
        chunks = [DistributedDataParallel(config, settings, chunk) for chunk in chunks]
    return chunks


def add_auxiliary_loss(chunk: GPTModel, config: TransformerConfig) -> None:
    """An auxiliary loss that is one parameter, joined to the graph as Megatron's MoE router does per token."""
    config.num_moe_experts = 2
    chunk.auxiliary = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))

    def join(_module: Any, _args: Any, output: torch.Tensor) -> torch.Tensor:
        return MoEAuxLossAutoScaler.apply(output, chunk.auxiliary * output.shape[0])

    chunk.decoder.register_forward_hook(join)


def global_name(chunk: GPTModel, name: str) -> str:
    """The parameter's name with the layer's number in the whole model."""

    def renumber(match: re.Match[str]) -> str:
        return f"layers.{chunk.decoder.layers[int(match[1])].layer_number - 1}."

    return re.sub(r"layers\.(\d+)\.", renumber, name)


def weight(name: str, param: torch.Tensor) -> torch.Tensor:
    """The whole tensor, drawn from its name alone."""
    shape = list(param.shape)
    if is_split(param):
        shape[param.partition_dim] *= mpu.get_tensor_model_parallel_world_size()
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    return 0.3 * torch.randn(shape, generator=generator, dtype=torch.float64) + float("norm" in name)


def shard(whole: torch.Tensor, param: torch.Tensor) -> torch.Tensor:
    if not is_split(param):
        return whole
    parts = whole.chunk(mpu.get_tensor_model_parallel_world_size(), param.partition_dim)
    return parts[mpu.get_tensor_model_parallel_rank()]


def is_split(param: torch.Tensor) -> bool:
    return bool(getattr(param, "tensor_model_parallel", False))
