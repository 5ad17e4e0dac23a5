"""Collectives over context-parallel ranks, each with the gradient that its caller declares.

- ``"partial"``: every rank's loss is its own share of one sum, so the gradient of the result adds up over the ranks.
- ``"replicated"``: every rank computes the same loss from the result, so each takes its own part of the gradient and
  nothing is summed.
- ``"none"``: the result carries no graph.

Choosing the wrong one of the first two scales gradients by ``size``, silently; hence no guessing.
Law: which collectives run, forward and backward, depends on the arguments alone and never on what a rank holds, so a
rank that holds nothing still meets the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from ._simulation import SimulatedGroup

if TYPE_CHECKING:
    from torch import Tensor

    from ._context_parallel import ContextParallel

Gradient = Literal["partial", "replicated", "none"]


def all_reduce_sum(x: Tensor, cp: ContextParallel, *, gradient: Gradient) -> Tensor:
    """Sum of ``x`` over the ranks of ``cp``; ``x`` has the same shape everywhere."""
    x = _prepare(x, cp, gradient)
    if cp.size == 1:
        return x
    if isinstance(cp.group, SimulatedGroup):
        return torch.stack(_exchange(x, cp.group, gradient)).sum(0)
    return _apply(_AllReduceSum, x, cp.group, gradient == "partial")


def all_gather_rows(x: Tensor, cp: ContextParallel, *, rows: Tensor, targets: Tensor, gradient: Gradient) -> Tensor:
    """Chosen rows of the concatenation of the ranks' tensors, which all have the same shape.

    Args:
        x: this rank's rows.
        cp: the rank and its group.
        rows: which rows of the concatenation to return.
        targets: for every row of ``x``, where it stands in the result; -1 for rows that are not in it.
        gradient: see the module.
    """
    x = _prepare(x, cp, gradient)
    if cp.size == 1:
        return x[rows]
    if isinstance(cp.group, SimulatedGroup):
        return torch.cat(_exchange(x, cp.group, gradient))[rows]
    return _apply(_AllGatherRows, x, cp.group, rows, targets, gradient == "partial")


class _AllReduceSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup, sum_gradient: bool) -> Tensor:
        ctx.group, ctx.sum_gradient = group, sum_gradient
        return _summed(x, group)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return (_summed(grad, ctx.group) if ctx.sum_gradient else grad), None, None


class _AllGatherRows(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, group: dist.ProcessGroup, rows: Tensor, targets: Tensor, sum_gradient: bool
    ) -> Tensor:
        ctx.group, ctx.sum_gradient = group, sum_gradient
        ctx.save_for_backward(targets)
        gathered = x.new_empty((dist.get_world_size(group) * x.shape[0], *x.shape[1:]))
        dist.all_gather(list(gathered.chunk(dist.get_world_size(group))), x.contiguous(), group=group)
        return gathered[rows]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        (targets,) = ctx.saved_tensors
        grad = _summed(grad, ctx.group) if ctx.sum_gradient else grad
        none = grad.new_zeros((1, *grad.shape[1:]))
        return torch.cat([grad, none])[targets], None, None, None, None


def _summed(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    total = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total


def _exchange(x: Tensor, group: SimulatedGroup, gradient: Gradient) -> tuple[Tensor, ...]:
    """All ranks' tensors, with the graph of all of them, of this rank's own, or of none."""
    everyone = group.exchange(x)
    if gradient == "partial":
        return everyone
    return tuple(x if rank == group.rank else other.detach() for rank, other in enumerate(everyone))


def _apply(function: type[torch.autograd.Function], *args: Any) -> Tensor:
    result: Tensor = function.apply(*args)  # type: ignore[no-untyped-call]
    return result


def _prepare(x: Tensor, cp: ContextParallel, gradient: Gradient) -> Tensor:
    """Check what can be checked alike on every rank, and give every rank the same graph."""
    if gradient not in get_args(Gradient):
        raise ValueError(f"gradient is {gradient!r}: give one of {get_args(Gradient)}")
    if cp.size > 1 and cp.group is None:
        raise ValueError(
            f"ContextParallel(rank={cp.rank}, size={cp.size}) has no group: a gather over {cp.size} ranks needs `group`"
        )
    if gradient == "none":
        return x.detach()
    if not x.is_floating_point():
        raise ValueError(f"a tensor of dtype {x.dtype} has no gradient: gather it with gradient='none'")
    if cp.size > 1 and torch.is_grad_enabled() and not x.requires_grad:
        return x.detach().requires_grad_()
    return x
