"""A reduction driven over a torch process group.

Collectives are called on the group itself, whose ranks are those within the group: no global rank appears.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeVar, assert_never
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from vime_metrics._errors import ReductionError
from vime_metrics._reduction import AllGather, AllReduce, Broadcast, Buffer, GroupMemory, Request, Steps
from vime_metrics.torch._roll_call import explain, missing_ranks

_T = TypeVar("_T")


@dataclass(slots=True)
class World:
    """A process group, what its ranks agreed on so far, and whether it still works."""

    memory: GroupMemory
    device: torch.device
    num_calls: int = 0
    broken: str = ""

    @classmethod
    def of(cls, group: dist.ProcessGroup) -> World:
        """The world of `group`, made at the first call."""
        world = _WORLDS.get(group)
        if world is None:
            world = cls(GroupMemory(rank=group.rank(), ranks=group.size()), _device(group))
            _WORLDS[group] = world
        return world

    def run(self, steps: Steps[_T], group: dist.ProcessGroup, keys: Collection[str], timeout_seconds: float) -> _T:
        """Carry out what `steps` asks for; `keys` says in an error what was being reduced."""
        if self.broken:
            raise ReductionError(self.broken)
        self.num_calls += 1
        timeout = timedelta(seconds=timeout_seconds)
        try:
            request = next(steps)
            while True:
                request = steps.send(self._carry_out(request, group, timeout))
        except StopIteration as finished:
            result: _T = finished.value
            return result
        except RuntimeError as error:
            missing = missing_ranks(group, self.num_calls)
            ranks = dist.get_process_group_ranks(group)
            self.broken = explain(missing, ranks, _describe(keys), timeout_seconds, str(error).splitlines()[0])
            raise ReductionError(self.broken) from error

    def _carry_out(self, request: Request, group: dist.ProcessGroup, timeout: timedelta) -> Buffer:
        tensor = torch.from_numpy(request.buffer).to(self.device)
        match request:
            case AllReduce(op=op, dst=dst):
                if dst is None:
                    _all_reduce(tensor, op, group, timeout)
                else:
                    _reduce(tensor, op, dst, group, timeout)
            case AllGather():
                rows = tensor.new_zeros(group.size(), tensor.numel())
                rows[group.rank()] = tensor
                tensor = _all_reduce(rows, "sum", group, timeout)
            case Broadcast(src=src):
                _broadcast(tensor, src, group, timeout)
            case unknown:
                assert_never(unknown)
        reply: Buffer = tensor.cpu().numpy()
        return reply


def _all_reduce(tensor: torch.Tensor, op: str, group: dist.ProcessGroup, timeout: timedelta) -> torch.Tensor:
    options = dist.AllreduceOptions()
    options.reduceOp, options.timeout = _OPS[op], timeout
    group.allreduce([tensor], options).wait(timeout)
    return tensor


def _reduce(tensor: torch.Tensor, op: str, dst: int, group: dist.ProcessGroup, timeout: timedelta) -> None:
    options = dist.ReduceOptions()
    options.reduceOp, options.rootRank, options.timeout = _OPS[op], dst, timeout
    group.reduce([tensor], options).wait(timeout)


def _broadcast(tensor: torch.Tensor, src: int, group: dist.ProcessGroup, timeout: timedelta) -> None:
    options = dist.BroadcastOptions()
    options.rootRank, options.timeout = src, timeout
    group.broadcast([tensor], options).wait(timeout)


_OPS: Final = {"sum": dist.ReduceOp(dist.ReduceOp.SUM), "max": dist.ReduceOp(dist.ReduceOp.MAX)}
_WORLDS: WeakKeyDictionary[dist.ProcessGroup, World] = WeakKeyDictionary()


def _device(group: dist.ProcessGroup) -> torch.device:
    """The CPU where the group has a backend for it, else the device of its backend: "cuda:nccl" is cuda."""
    backends = dist.get_backend_config(group)
    return torch.device("cpu" if "cpu:" in backends else backends.split(":")[0])


def _describe(keys: Collection[str]) -> str:
    if not keys:
        return "a step without metrics"
    return f"metric {min(keys)!r}" + (f" and {len(keys) - 1} more" if len(keys) > 1 else "")
