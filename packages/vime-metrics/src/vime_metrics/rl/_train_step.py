"""What a training step reports, the same for every split of its samples over micro-batches, DP and CP.

A rank holds, of each of its samples, some response tokens (all of them, or its CP slice) and their loss mask. For every
reported quantity it sums mask * value over those tokens. That sum, s_i, and the number of trainable tokens here, n_i,
add over any split; means are formed at the end, by dividing sums:
- `token_mean`: sum of s_i over sum of n_i;
- `rollout_mean`: each rollout u, i.e. all samples that share its id, has D_u trainable tokens over all ranks; the mean
  over rollouts of their token means is the sum of s_i / D_u over the sum of n_i / D_u.
A rollout without trainable tokens is in neither sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from vime_metrics._errors import MetricError
from vime_metrics._metric import Metric
from vime_metrics._numbers import Array, Values, as_array
from vime_metrics._sums import Mean, Sum


def train_step_report(
    sums: Mapping[str, Values],
    *,
    tokens: Values,
    rollout_tokens: Values | None = None,
    mode: Literal["token_mean", "rollout_mean"],
    num_rollouts: int | None = None,
) -> dict[str, Metric]:
    """The metrics of the samples of one micro-batch on one rank; add them up and reduce over DP x CP with replicas 1.

    Args:
        sums: name to the masked sums s_i, shape [samples].
        tokens: trainable tokens n_i that these sums ran over, shape [samples]; the CP slice's own number.
        rollout_tokens: D_u of the rollout of each sample, over all its samples and ranks, shape [samples].
        mode: what a mean is over.
        num_rollouts: for `rollout_mean`, divide by this number of rollouts of the step instead, so that rollouts
            without trainable tokens count as zeros, as in a loss with that constant.

    >>> whole = train_step_report({"kl": [6.0, 2.0]}, tokens=[3, 1], rollout_tokens=[3, 1], mode="rollout_mean")
    >>> whole["kl"].value
    2.0
    """
    held = as_array(tokens, "tokens")
    if num_rollouts is not None and mode != "rollout_mean":
        raise MetricError(f"num_rollouts belongs to mode 'rollout_mean', given mode {mode!r}: leave it out.")
    if mode == "token_mean":
        share = np.ones_like(held)
    elif mode == "rollout_mean":
        share = _rollout_share(held, rollout_tokens)
    else:
        raise MetricError(f"mode must be 'token_mean' or 'rollout_mean', given {mode!r}.")
    return {name: _metric(name, values, held, share, num_rollouts) for name, values in sums.items()}


def _metric(name: str, values: Values, held: Array, share: Array, num_rollouts: int | None) -> Metric:
    array = as_array(values, name)
    if array.size != held.size:
        raise MetricError(f"metric {name!r} has {array.size} sums for {held.size} samples: give one per sample.")
    trained = held > 0
    total, weight = float(array[trained] @ share[trained]), float(held @ share)
    return Mean(total, weight) if num_rollouts is None else Sum(total / num_rollouts)


def _rollout_share(held: Array, rollout_tokens: Values | None) -> Array:
    """1 / D_u of each sample, 0 where it has no trainable token here."""
    if rollout_tokens is None:
        raise MetricError("rollout_mean needs `rollout_tokens`: the trainable tokens of each sample's whole rollout.")
    whole = as_array(rollout_tokens, "rollout_tokens")
    if whole.size != held.size:
        raise MetricError(f"rollout_tokens has {whole.size} values for {held.size} samples: give one per sample.")
    if (held > whole).any():
        at = int(np.argmax(held > whole))
        raise MetricError(
            f"sample {at} has {held[at]:g} trainable tokens but its whole rollout only {whole[at]:g}: "
            f"sum rollout_tokens over all samples of the rollout before the step is cut."
        )
    return np.divide(1.0, whole, out=np.zeros_like(whole), where=held > 0)
