"""Causal attention over a packed stream, for Megatron's local layers, with RoPE and context parallelism.

Takes the place of the core attention of Megatron's local layer spec, which knows neither packed sequences nor CP. It
runs on any device; where Transformer Engine is at hand (CUDA only), `_model` takes that instead.

Always true: the result and the gradients equal those of one sequence after the other on a single rank, up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from megatron.core.packed_seq_params import PackedSeqParams

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor

    from vime_train.megatron._attention_rows import AttentionRows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttentionBlock:
    """One attention call: which places become its rows; `mask` is None where the causal mask is plain."""

    queries: Int[Tensor, " rows*queries"]
    keys: Int[Tensor, " rows*keys"]
    num_rows: int
    mask: Bool[Tensor, "rows 1 queries keys"] | None


@dataclass(kw_only=True, eq=False)
class PackedAttentionParams(PackedSeqParams):  # type: ignore[misc]
    """What Megatron hands through to the core attention, with what `PackedAttention` needs beyond it."""

    cos: Float[Tensor, "tokens 1 half"]
    sin: Float[Tensor, "tokens 1 half"]
    blocks: tuple[AttentionBlock, ...]
    places: Int[Tensor, " tokens"]
    context_group: dist.ProcessGroup | None


def attention_params(
    cu_seqlens: Int[Tensor, " boundaries"],
    max_seqlen: int,
    rows: AttentionRows,
    angles: Float[Tensor, "tokens half"],
    *,
    context_group: dist.ProcessGroup | None,
) -> PackedAttentionParams:
    """Everything about one micro-batch that is the same in every layer, computed once, on the device of `angles`."""
    device = angles.device
    return PackedAttentionParams(
        qkv_format="thd",
        cu_seqlens_q=cu_seqlens,
        cu_seqlens_kv=cu_seqlens,
        max_seqlen_q=max_seqlen,
        max_seqlen_kv=max_seqlen,
        cos=angles.cos()[:, None],
        sin=angles.sin()[:, None],
        places=torch.from_numpy(rows.places).to(device),
        context_group=context_group,
        blocks=tuple(
            AttentionBlock(
                queries=torch.from_numpy(block.queries).flatten().to(device),
                keys=torch.from_numpy(block.keys).flatten().to(device),
                num_rows=len(block.queries),
                mask=None
                if context_group is None
                else _mask(torch.from_numpy(block.positions), block.keys.shape[1]).to(device),
            )
            for block in rows.blocks
        ),
    )


class PackedAttention(torch.nn.Module):
    """A core attention for Megatron's `SelfAttention`; takes `[tokens, heads, head_dim]` before RoPE."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(
        self,
        query: Float[Tensor, "tokens heads dim"],
        key: Float[Tensor, "tokens groups dim"],
        value: Float[Tensor, "tokens groups dim"],
        attention_mask: None,
        attn_mask_type: object = None,
        attention_bias: None = None,
        packed_seq_params: PackedAttentionParams | None = None,
    ) -> Float[Tensor, "tokens heads*dim"]:
        """Attend within each packed sequence."""
        if packed_seq_params is None:
            raise ValueError("PackedAttention: packed_seq_params is None: pass the micro-batch's attention_params")
        params = packed_seq_params
        query = rotate(query, params.cos, params.sin)
        key_value = torch.stack([rotate(key, params.cos, params.sin), value], dim=1)
        if params.context_group is not None:
            key_value = _AllGatherTokens.apply(key_value, params.context_group)  # type: ignore[no-untyped-call]
        outputs = [_attend(query, key_value, block) for block in params.blocks]
        return torch.cat(outputs).index_select(0, params.places)


def rotate(x: Float[Tensor, "tokens heads dim"], cos: Tensor, sin: Tensor) -> Float[Tensor, "tokens heads dim"]:
    """RoPE on two halves of the head dimension (not interleaved), as in transformers."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)


def _attend(query: Tensor, key_value: Tensor, block: AttentionBlock) -> Float[Tensor, "rows*queries heads*dim"]:
    heads, groups, dim = query.shape[1], key_value.shape[2], query.shape[2]
    q = query.index_select(0, block.queries).view(block.num_rows, -1, heads, dim).transpose(1, 2)
    kv = key_value.index_select(0, block.keys).view(block.num_rows, -1, 2, groups, dim)
    k, v = kv.transpose(1, 3).unbind(2)
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask=block.mask, is_causal=block.mask is None, enable_gqa=heads != groups
    )
    return out.transpose(1, 2).reshape(-1, heads * dim)


def _mask(positions: Int[Tensor, "rows queries"], num_keys: int) -> Bool[Tensor, "rows 1 queries keys"]:
    return (positions[:, :, None] >= torch.arange(num_keys))[:, None]


class _AllGatherTokens(torch.autograd.Function):
    """Concatenate the ranks' tokens; backward adds up what every rank's queries did to this rank's keys and values."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        gathered = x.new_empty((group.size() * x.shape[0], *x.shape[1:]))
        dist.all_gather_into_tensor(gathered, x.contiguous(), group=group)
        return gathered

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad.chunk(ctx.group.size())[ctx.group.rank()], None
