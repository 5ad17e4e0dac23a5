"""One optimizer step of one model: its micro-batches through the pipeline, its gradients into its weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from vime_train.megatron._cpu import device_scope
from vime_train.megatron._objectives import Scaling
from vime_train.megatron._optimizer import apply_gradients, zero_gradients
from vime_train.megatron._schedule import run_micro_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from megatron.core.optimizer import ChainedOptimizer

    from vime_train.config import RunConfig
    from vime_train.megatron._groups import Groups
    from vime_train.megatron._micro_batch import MicroBatch
    from vime_train.megatron._rank_model import RankModel
    from vime_train.megatron._schedule import LossFunction
    from vime_train.rollout import RankBatch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trained:
    """A model and the optimizer that moves it."""

    model: RankModel
    optimizer: ChainedOptimizer


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Update:
    """What a step left: whether the weights moved, the gradient's norm before clipping, the last stage's logs."""

    moved: bool
    grad_norm: float
    logs: list[dict[str, Any]]


def update(
    trained: Trained,
    batch: RankBatch,
    members: Sequence[tuple[int, ...]],
    *,
    config: RunConfig,
    lr: float,
    objective: Callable[[Scaling], LossFunction],
) -> Update:
    """Run the micro-batches of `members` and step with their gradients; collective."""
    model = trained.model
    micro_batches = model.builder.build(batch, members)
    per_token = config.train.calculate_per_token_loss
    scaling = Scaling(
        groups=model.groups,
        num_microbatches=len(members),
        step_num_tokens=_tokens_of_step(micro_batches, model.groups) if per_token else None,
    )
    with device_scope():
        zero_gradients(trained.optimizer, model.chunks)
        logs = run_micro_batches(model.chunks, model.groups, micro_batches, objective(scaling))
        moved, norm = apply_gradients(trained.optimizer, lr=lr, clip_grad=config.optimizer.clip_grad)
    return Update(moved=moved, grad_norm=norm, logs=logs)


def _tokens_of_step(micro_batches: Sequence[MicroBatch], groups: Groups) -> int:
    """Places of all micro-batches on all DP x CP ranks, padding included: what Megatron's token loss divides by."""
    count = torch.tensor(sum(micro_batch.packed.local_length for micro_batch in micro_batches), device=groups.device)
    dist.all_reduce(count, group=groups.dp_cp)
    return int(count)
