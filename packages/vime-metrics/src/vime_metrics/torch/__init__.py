"""Reduction over a torch process group."""

from __future__ import annotations

from collections.abc import Mapping

import torch.distributed as dist

from vime_metrics._merge import merge
from vime_metrics._metric import Metric

__all__ = ["all_reduce", "reduce"]


def all_reduce(
    step: Mapping[str, Metric], group: dist.ProcessGroup | None = None, replicas: int = 1
) -> dict[str, float]:
    """name -> float on every rank of `group`."""
    steps: list[Mapping[str, Metric]] = [step]
    if dist.is_initialized():
        steps = [{}] * dist.get_world_size(group)
        dist.all_gather_object(steps, dict(step), group=group)
    values: dict[str, float] = {}
    for key, metric in merge(*steps).items():
        values |= metric.report(key)
    return values


def reduce(
    step: Mapping[str, Metric], group: dist.ProcessGroup | None = None, group_dst: int = 0, replicas: int = 1
) -> dict[str, float] | None:
    """The same on the rank `group_dst` of `group`, None elsewhere."""
    values = all_reduce(step, group, replicas)
    return values if not dist.is_initialized() or dist.get_rank(group) == group_dst else None
