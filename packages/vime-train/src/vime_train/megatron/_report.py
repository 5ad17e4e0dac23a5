"""What a step reports: the same numbers on every rank, whatever the layout.

Always true: a value is counted once, by the ranks that computed it (last stage, TP rank 0); means over tokens carry the
step's weights, so their denominator is that of the loss; whatever a log holds besides sums is such a mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from vime_metrics import Mean, Metric, Sum
from vime_metrics.torch import all_reduce
from vime_train.megatron._objectives import SAMPLE_LOSSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from vime_train.megatron._groups import Groups

_SUMS = ("loss", "tokens")
_NO_MEANS = {*_SUMS, "weight", SAMPLE_LOSSES}


def reduce_logs(logs: Sequence[dict[str, Tensor]], groups: Groups) -> dict[str, float]:
    """Add the logs of all micro-batches and ranks."""
    return all_reduce(_local(logs) if groups.tp_rank == 0 else {})


def _local(logs: Sequence[dict[str, Tensor]]) -> dict[str, Metric]:
    if not logs:
        return {}
    means = [name for name in logs[0] if name not in _NO_MEANS]
    names = [*_SUMS, *means, "weight"]
    added = torch.stack([torch.stack([log[name].double() for name in names]) for log in logs]).sum(0).tolist()
    totals = dict(zip(names, added, strict=True))
    return {
        **{name: Sum(totals[name]) for name in _SUMS},
        **{name: Mean(totals[name], totals["weight"]) for name in means},
    }
