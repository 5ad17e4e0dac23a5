"""One optimizer step that never poisons the weights: gradients that are not finite are counted and skipped.

Always true: after `apply_gradients` either every parameter of every rank has moved, or none has and the result says so.
All ranks decide alike, since the norm that decides is reduced over all of them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import torch
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer.clip_grads import clip_grad_by_total_norm_fp32

if TYPE_CHECKING:
    from megatron.core.distributed import DistributedDataParallel
    from megatron.core.optimizer import ChainedOptimizer

    from vime_train.config import RunConfig
    from vime_train.megatron._model import ModelChunks


def build_optimizer(config: RunConfig, chunks: ModelChunks) -> ChainedOptimizer:
    """Megatron's distributed optimizer over this rank's chunks; build it after the weights are set."""
    section = config.optimizer
    ours = {
        "optimizer": "adam",
        "lr": section.lr,
        "weight_decay": section.weight_decay,
        "adam_beta1": section.adam_beta1,
        "adam_beta2": section.adam_beta2,
        "clip_grad": section.clip_grad,
        "params_dtype": chunks.dtype,
        "bf16": chunks.dtype == torch.bfloat16,
        "use_distributed_optimizer": True,
    }
    return get_megatron_optimizer(
        OptimizerConfig(**{**ours, **section.native}), chunks.wrapped, use_gloo_process_groups=False
    )


def zero_gradients(optimizer: ChainedOptimizer, chunks: ModelChunks) -> None:
    """Forget the gradients of the last step."""
    for chunk in cast("list[DistributedDataParallel]", chunks.wrapped):
        chunk.zero_grad_buffer()
    optimizer.zero_grad()


@torch.no_grad()
def apply_gradients(optimizer: ChainedOptimizer, *, lr: float, clip_grad: float) -> tuple[bool, float]:
    """Clip and step; returns whether the weights moved, and the gradient norm before clipping over all ranks."""
    optimizer.prepare_grads()
    norm = optimizer.get_grad_norm()
    if not math.isfinite(norm):
        return False, norm
    for group in optimizer.param_groups:
        group["lr"] = lr
    for part in optimizer.chained_optimizers:
        clip_grad_by_total_norm_fp32(part.get_parameters(), max_norm=clip_grad, total_norm=norm)
    optimizer.step_with_ready_grads()
    return True, norm
