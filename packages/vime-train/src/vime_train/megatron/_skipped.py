"""Steps whose gradients are not finite: what a person needs to find the cause.

Always true: a skipped step is counted on every rank alike and leaves weights and optimizer state as they were; its
record names parameters and samples of all ranks, not of this one alone.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import torch

from vime_train.megatron._exchange import gather_json
from vime_train.megatron._hf_weights import local_parameters
from vime_train.megatron._objectives import SAMPLE_LOSSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from vime_train.megatron._groups import Groups
    from vime_train.megatron._model import ModelChunks
    from vime_train.rollout import RankBatch

_LOG = logging.getLogger(__name__)
_NAMED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedStep:
    """An optimizer step that was not taken.

    `step` counts all steps of the trainer, `samples` are positions in the iteration's whole batch whose loss is not
    finite, `parameters` those whose gradient is not.
    """

    step: int
    grad_norm: float
    samples: tuple[int, ...]
    parameters: tuple[str, ...]


def describe_skipped(
    batch: RankBatch,
    members: Sequence[tuple[int, ...]],
    logs: Sequence[dict[str, Tensor]],
    chunks: ModelChunks,
    groups: Groups,
    *,
    step: int,
    grad_norm: float,
) -> SkippedStep:
    """Collect what every rank saw; all ranks call, all get the same record, rank 0 logs it."""
    samples = gather_json(_bad_samples(batch, members, logs), groups)
    parameters = gather_json(_bad_parameters(chunks), groups)
    record = SkippedStep(
        step=step,
        grad_norm=grad_norm,
        samples=tuple(sorted(set(chain.from_iterable(samples)))),
        parameters=tuple(sorted(set(chain.from_iterable(parameters)))),
    )
    if groups.rank == 0:
        _LOG.warning(
            "step %d skipped: the gradient norm is %s; samples with a loss that is not finite: %s; "
            "parameters with a gradient that is not finite: %s (%d in all)",
            step,
            grad_norm,
            list(record.samples),
            list(record.parameters[:_NAMED]),
            len(record.parameters),
        )
    return record


def _bad_samples(batch: RankBatch, members: Sequence[tuple[int, ...]], logs: Sequence[dict[str, Tensor]]) -> list[int]:
    if not logs:
        return []
    losses = torch.cat([log[SAMPLE_LOSSES] for log in logs])
    positions = [batch.schedule.partition[member] for micro_batch in members for member in micro_batch]
    return [position for position, bad in zip(positions, (~losses.isfinite()).tolist(), strict=True) if bad]


def _bad_parameters(chunks: ModelChunks) -> list[str]:
    return [
        name
        for name, parameter in local_parameters(chunks).items()
        if not bool(parameter.main_grad.isfinite().all())  # type: ignore[attr-defined]
    ]
