"""Running a loss on one split: every rank's share of every micro-batch, combined as a trainer combines them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch

from vime_cp import ContextParallel, SimulatedGroup, pack_micro_batch, pack_response, simulate

from ._draw import draw_columns, poisoned
from ._shard import COLUMNS, Shard, Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from ._case import Case, SampleSpec, Split

LossFunction: TypeAlias = Callable[[Shard], Any]
Combine = Literal["sum", "mean", "megatron", "megatron_per_token"]

DIFFERENTIATED = ("log_probs", "entropy", "values")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Loss of a step, and its gradient with respect to every sample's columns, ``gradients[column][sample]``."""

    value: Tensor
    gradients: dict[str, tuple[Tensor, ...]]


def evaluate(loss_function: LossFunction, case: Case, combine: Combine, *, poison: bool = False) -> Outcome:
    """Run all ranks and micro-batches of a case, add up their losses, and differentiate once.

    Args:
        loss_function: what is examined.
        case: samples and split.
        combine: what a trainer does with the shares' losses; see `check`.
        poison: whether masked positions hold NaN.
    """
    columns = [draw_columns(sample) for sample in case.samples]
    for column in columns:
        for name in DIFFERENTIATED:
            column[name].requires_grad_()
    outputs = [
        [_run_micro_batch(loss_function, case, members, columns, poison=poison) for members in micro_batches]
        for micro_batches in case.split.ranks
    ]
    value = _combine([output for rank in outputs for shares in rank for output in shares], case.split, combine)
    gradients = {name: _gradient(value, [column[name] for column in columns]) for name in DIFFERENTIATED}
    return Outcome(value=value.detach(), gradients=gradients)


def _run_micro_batch(
    loss_function: LossFunction,
    case: Case,
    members: tuple[int, ...],
    columns: Sequence[dict[str, Tensor]],
    *,
    poison: bool,
) -> list[Any]:
    split, specs = case.split, [case.samples[i] for i in members]
    masks = [torch.tensor(spec.mask, dtype=torch.float64) for spec in specs]
    step = _step_facts(case.samples, split)

    def one_rank(group: SimulatedGroup) -> Any:
        batch = pack_micro_batch(
            [torch.arange(spec.prompt + len(spec.mask)) for spec in specs],
            [len(spec.mask) for spec in specs],
            masks,
            cp=ContextParallel(rank=group.rank, size=split.cp, layout=split.layout, group=group),
            pad_multiple=2,
        )
        local = {name: _pack([columns[i][name] for i in members], masks, batch, poison=poison) for name in COLUMNS}
        return loss_function(Shard(batch=batch, samples=members, step=step, **local))

    return simulate(split.cp, one_rank)


def _pack(values: list[Tensor], masks: list[Tensor], batch: Any, *, poison: bool) -> Tensor:
    if poison:
        values = [poisoned(value, mask) for value, mask in zip(values, masks, strict=True)]
    return pack_response(values, batch, fill=torch.nan if poison else 0.0).double()


def _step_facts(samples: Sequence[SampleSpec], split: Split) -> Step:
    """What the split's ranks are told about the whole step."""
    return Step(
        mask_sums=torch.tensor([sum(sample.mask) for sample in samples], dtype=torch.float64),
        rollout_ids=tuple(sample.rollout for sample in samples),
        prompt_ids=tuple(sample.rollout // 2 for sample in samples),
        num_microbatches=split.num_microbatches,
        dp=len(split.ranks),
        cp=split.cp,
    )


def _combine(outputs: list[Any], split: Split, combine: Combine) -> Tensor:
    if combine in ("sum", "mean"):
        total = torch.stack([_scalar(output) for output in outputs]).sum()
        return total if combine == "sum" else total / len(outputs)
    losses = torch.stack([_scalar(output[0]) for output in outputs])
    tokens = torch.stack([torch.as_tensor(output[1], dtype=torch.float64) for output in outputs])
    if combine == "megatron_per_token":
        return losses.sum() / tokens.sum().clamp_min(1)
    return (losses / tokens.clamp_min(1)).sum() / len(outputs)


def _scalar(loss: Any) -> Tensor:
    if not isinstance(loss, torch.Tensor) or loss.dim() != 0:
        given = f"shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise ValueError(f"the loss function returned {given}: return a scalar tensor, this share's loss")
    return loss.double()


def _gradient(value: Tensor, leaves: Sequence[Tensor]) -> tuple[Tensor, ...]:
    if not value.requires_grad or not leaves:
        return tuple(torch.zeros_like(leaf) for leaf in leaves)
    grads = torch.autograd.grad(value, leaves, retain_graph=True, allow_unused=True)
    return tuple(torch.zeros_like(x) if grad is None else grad for x, grad in zip(leaves, grads, strict=True))
