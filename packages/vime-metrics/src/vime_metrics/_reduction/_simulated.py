"""All ranks of a group in one process, for tests and for programs that run alone.

The ranks run the same reduction as over a real process group; only the communication is replaced by numpy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from vime_metrics._errors import MetricError, ReductionError, SchemaError
from vime_metrics._metric import Metric
from vime_metrics._numbers import Array
from vime_metrics._reduction._agreement import GroupMemory
from vime_metrics._reduction._reduction import reduction
from vime_metrics._reduction._requests import AllGather, AllReduce, Broadcast, Buffer, Bytes, Request, Steps
from vime_metrics._reduction._schema import NonFinite, Options, Replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One collective that was carried out: its kind and the bytes of one rank's buffer."""

    kind: str
    num_bytes: int


class SimulatedWorld:
    """A group of `size` ranks that lives in one process and keeps, like a real one, what it agreed on between steps.

    `collectives` lists those of the latest reduction.

    >>> from vime_metrics import Max, Mean
    >>> world = SimulatedWorld(2)
    >>> world.all_reduce([{"loss": Mean(3, 12), "longest": Max(10)}, {"loss": Mean(3, 4)}])[1]
    {'longest': 10.0, 'loss': 0.375}
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise MetricError(f"a world has at least 1 rank, given {size}.")
        self.size = size
        self.collectives: list[Collective] = []
        self._memories = [GroupMemory(rank=rank, ranks=size) for rank in range(size)]

    def all_reduce(
        self,
        steps: Sequence[Mapping[str, Metric] | None],
        replicas: Replicas = 1,
        *,
        strict: bool = False,
        nonfinite: NonFinite = "keep",
    ) -> list[dict[str, float]]:
        """What each rank gets when rank r brings `steps[r]`; None is a rank that never comes."""
        options = Options.of(group_dst=None, strict=strict, nonfinite=nonfinite, replicas=replicas)
        return [values for values in self.run(steps, options) if values is not None]

    def reduce(
        self,
        steps: Sequence[Mapping[str, Metric] | None],
        group_dst: int = 0,
        replicas: Replicas = 1,
        *,
        strict: bool = False,
        nonfinite: NonFinite = "keep",
    ) -> list[dict[str, float] | None]:
        """The same on the rank `group_dst`, None for the others."""
        require_rank(group_dst, self.size)
        return self.run(steps, Options.of(group_dst=group_dst, strict=strict, nonfinite=nonfinite, replicas=replicas))

    def run(self, steps: Sequence[Mapping[str, Metric] | None], options: Options) -> list[dict[str, float] | None]:
        """What each rank gets from a reduction with `options`."""
        if len(steps) != self.size:
            raise MetricError(f"{self.size} ranks need {self.size} steps, given {len(steps)}.")
        self.collectives = []
        absent = [rank for rank, step in enumerate(steps) if step is None]
        if absent:
            keys = sorted({key for step in steps if step is not None for key in step})
            raise ReductionError(never_came(absent, keys))
        present = [step for step in steps if step is not None]
        ranks = zip(present, self._memories, strict=True)
        return self._lockstep([reduction(step, memory, options) for step, memory in ranks])

    def _lockstep(self, ranks: list[Steps[dict[str, float] | None]]) -> list[dict[str, float] | None]:
        """Run all ranks from collective to collective; an error is raised once every rank has come to it."""
        results: list[dict[str, float] | None] = []
        errors: list[SchemaError] = []
        replies: Sequence[Buffer | None] = [None] * len(ranks)
        while not results:
            requests: list[Request] = []
            for rank, reply in zip(ranks, replies, strict=True):
                try:
                    requests.append(next(rank) if reply is None else rank.send(reply))
                except StopIteration as finished:
                    results.append(finished.value)
                except SchemaError as error:
                    errors.append(error)
            if errors:
                raise errors[0]
            if requests:
                replies = self._carry_out(requests)
        return results

    @np.errstate(over="ignore", invalid="ignore")
    def _carry_out(self, requests: Sequence[Request]) -> Sequence[Buffer]:
        self.collectives.append(Collective(kind=type(requests[0]).__name__, num_bytes=requests[0].buffer.nbytes))
        match requests[0]:
            case AllReduce(op=op, dst=dst):
                buffers = [request.buffer.view(np.float64) for request in requests]
                reduced: Array = np.sum(buffers, axis=0) if op == "sum" else np.max(buffers, axis=0)
                return [reduced if dst in (None, rank) else buffer for rank, buffer in enumerate(buffers)]
            case AllGather():
                rows: Bytes = np.stack([request.buffer.view(np.uint8) for request in requests])
                return [rows] * len(requests)
            case Broadcast(src=src):
                return [requests[src].buffer] * len(requests)
            case unknown:
                assert_never(unknown)


def require_rank(group_dst: int, size: int) -> None:
    """`group_dst` is a rank of the group, counted within the group."""
    if not 0 <= group_dst < size:
        raise MetricError(f"group_dst={group_dst} is not a rank of a group of {size}: it counts within the group.")


def never_came(absent: Sequence[int], keys: Sequence[str]) -> str:
    """The text for ranks that did not take part."""
    more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
    waiting = f"metric {keys[0]!r}{more}" if keys else "a step without metrics"
    return (
        f"rank {', '.join(map(str, absent))} of the group never came to the reduction of {waiting}: "
        f"every rank must make the call, with an empty step if it has nothing."
    )
