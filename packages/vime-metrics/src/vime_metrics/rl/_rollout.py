"""What a rollout looked like: lengths, rewards, truncation, masking; as a whole and by source."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from vime_metrics._errors import MetricError
from vime_metrics._extremes import Max, Min
from vime_metrics._metric import Metric
from vime_metrics._moments import Std
from vime_metrics._numbers import Array, Values, as_array
from vime_metrics._quantiles import Quantiles
from vime_metrics._sums import Mean


def summary(name: str, values: Values) -> dict[str, Metric]:
    """Mean, standard deviation, extremes and quantiles of `values` under `name`, right over any set of ranks.

    >>> sorted(summary("reward", [0.0, 1.0]))
    ['reward', 'reward/max', 'reward/mean', 'reward/min', 'reward/std']
    """
    array = as_array(values, name)
    return {
        name: Quantiles.of(array),
        f"{name}/mean": Mean.of(array),
        f"{name}/std": Std.of(array),
        f"{name}/max": Max.of(array),
        f"{name}/min": Min.of(array),
    }


def rollout_statistics(
    response_lengths: Values,
    *,
    rewards: Values | None = None,
    truncated: Values | None = None,
    trainable_tokens: Values | None = None,
    max_response_length: int | None = None,
    real: Sequence[bool] | None = None,
) -> dict[str, Metric]:
    """The metrics of some samples; every argument has shape [samples], and those left out report nothing.

    Args:
        response_lengths: tokens of each response, those of tools included.
        rewards: reported as `reward`.
        truncated: whether generation was cut off: `response/truncated_ratio`.
        trainable_tokens: response tokens under the loss mask. `response/masked_ratio` is the share of response tokens
            outside it, `response/fully_masked_ratio` the share of samples with none inside.
        max_response_length: `response/clipped_ratio` is the share of responses that reach it.
        real: False for samples that only fill up a batch; they are in no metric.

    >>> found = rollout_statistics([4, 8], rewards=[0, 1], trainable_tokens=[4, 5], max_response_length=8)
    >>> found["response/masked_ratio"].value, found["response/clipped_ratio"].value, found["reward/mean"].value
    (0.25, 0.5, 0.5)
    """
    keep = _Rows.of(response_lengths, real)
    lengths = keep.column(response_lengths, "response_lengths")
    metrics = summary("response/length", lengths)
    if rewards is not None:
        metrics |= summary("reward", keep.column(rewards, "rewards"))
    if truncated is not None:
        metrics["response/truncated_ratio"] = Mean.of(keep.column(truncated, "truncated"))
    if max_response_length is not None:
        metrics["response/clipped_ratio"] = Mean.of(lengths >= max_response_length)
    if trainable_tokens is not None:
        trainable = keep.column(trainable_tokens, "trainable_tokens")
        metrics["response/masked_ratio"] = Mean(float((lengths - trainable).sum()), float(lengths.sum()))
        metrics["response/fully_masked_ratio"] = Mean.of(trainable == 0)
    return metrics


def by_source(
    sources: Sequence[Hashable], report: Callable[[NDArray[np.intp]], Mapping[str, Metric]]
) -> dict[str, Metric]:
    """`report` of the positions of each source, under `source/NAME/`; ranks may have different sources.

    >>> rewards = np.array([1.0, 0.0, 1.0])
    >>> found = by_source(["math", "code", "math"], lambda at: {"reward": Mean.of(rewards[at])})
    >>> {name: metric.value for name, metric in found.items()}
    {'source/code/reward': 0.0, 'source/math/reward': 1.0}
    """
    names = np.array([str(source) for source in sources], dtype=object)
    metrics: dict[str, Metric] = {}
    for name in sorted(set(names)):
        for key, metric in report(np.flatnonzero(names == name)).items():
            metrics[f"source/{name}/{key}"] = metric
    return metrics


class _Rows:
    """The samples that count, of a known number of samples."""

    def __init__(self, real: NDArray[np.bool_]) -> None:
        self._real = real

    @classmethod
    def of(cls, lengths: Values, real: Sequence[bool] | None) -> _Rows:
        samples = as_array(lengths, "response_lengths").size
        rows = cls(np.ones(samples, np.bool_))
        return rows if real is None else cls(rows.column(real, "real") > 0)

    def column(self, values: Values, name: str) -> Array:
        array = as_array(values, name)
        if array.size != self._real.size:
            raise MetricError(f"{name} has {array.size} values for {self._real.size} samples: give one per sample.")
        return array[self._real]
