"""Groups of ranks: a process group, simulated ranks of one process, or None for a single rank; and what needs no graph.

Laws
- `None` is a group of one rank: every collective is the identity.
- Results carry no graph (C4) and arguments are not changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import torch
import torch.distributed as dist

from ._simulation import SimulatedGroup

if TYPE_CHECKING:
    from jaxtyping import Shaped
    from torch import Tensor

Group: TypeAlias = dist.ProcessGroup | SimulatedGroup | None


def group_rank(group: Group) -> int:
    """This rank's coordinate in the group."""
    if group is None:
        return 0
    return group.rank if isinstance(group, SimulatedGroup) else dist.get_rank(group)


def group_size(group: Group) -> int:
    """Number of ranks in the group."""
    if group is None:
        return 1
    return group.size if isinstance(group, SimulatedGroup) else dist.get_world_size(group)


def reduce_values(x: Tensor, op: Literal["sum", "max"], group: Group) -> Tensor:
    """Element by element over the ranks, the sum or the largest."""
    x = x.detach()
    if group is None:
        return x
    if isinstance(group, SimulatedGroup):
        stacked = torch.stack(group.exchange(x))
        return stacked.sum(0) if op == "sum" else stacked.amax(0)
    total = x.clone()
    dist.all_reduce(total, dist.ReduceOp.SUM if op == "sum" else dist.ReduceOp.MAX, group=group)
    return total


def gather_rows(row: Shaped[Tensor, " columns"], group: Group) -> Shaped[Tensor, "ranks columns"]:
    """The row of every rank, in rank order."""
    row = row.detach()
    if group is None:
        return row[None]
    if isinstance(group, SimulatedGroup):
        return torch.stack(group.exchange(row))
    rows = row.new_empty((dist.get_world_size(group), *row.shape))
    dist.all_gather(list(rows.unbind(0)), row.contiguous(), group=group)
    return rows
