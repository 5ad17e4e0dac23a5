"""The two calls of a training loop."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import torch.distributed as dist

from vime_metrics._errors import MetricError
from vime_metrics._metric import Metric
from vime_metrics._reduction import NonFinite, Options, Replicas, SimulatedWorld, reduction, require_rank
from vime_metrics.torch._world import World

DEFAULT_TIMEOUT_SECONDS = 600.0


def all_reduce(
    step: Mapping[str, Metric],
    group: dist.ProcessGroup | None = None,
    replicas: Replicas = 1,
    *,
    strict: bool = False,
    nonfinite: NonFinite = "keep",
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
) -> dict[str, float]:
    """Name to number over all ranks of `group`, the same on each: the values of the pooled data, names ascending.

    Every rank of the group calls it, also one that has nothing to add. In a program without process groups, the step
    is reduced as by a group of one.

    Args:
        step: the metrics of this rank.
        group: any process group; None is the default one. Numbers travel over its CPU backend if it has one.
        replicas: how many ranks of the group hold a copy of each value, e.g. the CP size for what every CP rank knows
            in a group of DP x CP; a mapping from key says so for some keys only. Sharded values have 1.
        strict: refuse keys that only some ranks have, instead of taking their union.
        nonfinite: where NaN or infinity was added, `"keep"` reports NaN, `"drop"` the value of the finite rest; both
            add `key/nonfinite`, the number of such values; `"error"` refuses.
        timeout_seconds: how long to wait for a rank that does not come.

    Raises:
        SchemaError: on every rank, if kinds or settings of a key differ, a rank passed something that is no metric, or
            `strict` or `nonfinite` refuse; names rank (within the group) and key.
        ReductionError: a rank died or never came; names it. The group cannot be used any more.

    >>> from vime_metrics import Max, Mean
    >>> all_reduce({"train/loss": Mean(3, 12), "response/longest": Max(9000)})
    {'response/longest': 9000.0, 'train/loss': 0.25}
    """
    options = Options.of(group_dst=None, strict=strict, nonfinite=nonfinite, replicas=replicas)
    values = _run(step, group, options, timeout_seconds)
    return {} if values is None else values


def reduce(
    step: Mapping[str, Metric],
    group: dist.ProcessGroup | None = None,
    group_dst: int = 0,
    replicas: Replicas = 1,
    *,
    strict: bool = False,
    nonfinite: NonFinite = "keep",
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
) -> dict[str, float] | None:
    """The same as `all_reduce` on the rank `group_dst`, counted within `group`; None on the others.

    >>> from vime_metrics import Count
    >>> reduce({"samples": Count(8)}, group_dst=0)
    {'samples': 8.0}
    """
    options = Options.of(group_dst=group_dst, strict=strict, nonfinite=nonfinite, replicas=replicas)
    return _run(step, group, options, timeout_seconds)


@cache
def _alone() -> SimulatedWorld:
    """The group of one of a program without process groups; kept, since it remembers the schemas it met."""
    return SimulatedWorld(1)


def _run(
    step: Mapping[str, Metric], group: dist.ProcessGroup | None, options: Options, timeout_seconds: float
) -> dict[str, float] | None:
    if group is None and not dist.is_initialized():
        _require_destination(options, 1)
        return _alone().run([step], options)[0]
    chosen = dist.group.WORLD if group is None else group
    if not isinstance(chosen, dist.ProcessGroup):
        raise MetricError("this rank is not part of the group: call it on the ranks that are.")
    _require_destination(options, chosen.size())
    world = World.of(chosen)
    return world.run(reduction(step, world.memory, options), chosen, step, timeout_seconds)


def _require_destination(options: Options, size: int) -> None:
    if options.group_dst is not None:
        require_rank(options.group_dst, size)
