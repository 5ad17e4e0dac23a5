"""Pooling the metrics of several places, key by key."""

from __future__ import annotations

from collections.abc import Mapping

from vime_metrics._errors import MetricError
from vime_metrics._metric import Metric


def merge(*steps: Mapping[str, Metric]) -> dict[str, Metric]:
    """The union of all keys; metrics under one key are added.

    >>> from vime_metrics import Max, Mean
    >>> pooled = merge({"loss": Mean(3, 12)}, {"loss": Mean(3, 4), "longest": Max(7)})
    >>> pooled["loss"].value, pooled["longest"].value
    (0.375, 7.0)
    """
    pooled: dict[str, Metric] = {}
    for step in steps:
        for key, metric in step.items():
            pooled[key] = add(key, pooled[key], metric) if key in pooled else require_metric(key, metric)
    return pooled


def add(key: str, one: Metric, other: Metric) -> Metric:
    """`one + other`; an error names `key`."""
    try:
        return one + require_metric(key, other)
    except MetricError as error:
        raise MetricError(f"metric {key!r}: {error}") from error


def require_metric(key: str, metric: object) -> Metric:
    """`metric` itself if it is one; else an error that names `key`."""
    if not isinstance(metric, Metric):
        raise MetricError(
            f"metric {key!r} is a {type(metric).__name__} ({metric!r}): say how it adds, e.g. Sum, Mean, Max or Last."
        )
    return metric
