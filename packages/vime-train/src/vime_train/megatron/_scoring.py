"""Forward passes without training: log-probs or values of a batch, and how far they are from the engine's (law T2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from vime_cp import gather_responses
from vime_metrics import Count, Max, Mean
from vime_metrics.torch import all_reduce
from vime_train.megatron._cpu import device_scope
from vime_train.megatron._micro_batch import steps_of
from vime_train.megatron._schedule import run_micro_batches

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from vime_train.megatron._groups import Groups
    from vime_train.megatron._objectives import ScoringObjective
    from vime_train.megatron._rank_model import RankModel
    from vime_train.rollout import RankBatch


@torch.no_grad()
def score_batch(
    batch: RankBatch, model: RankModel, objective: ScoringObjective
) -> list[npt.NDArray[np.float32]] | None:
    """Log-probs (or values) of every sample's response tokens, 0 where masked; None off the last stage."""
    groups = model.groups
    found: dict[int, npt.NDArray[np.float32]] = {}
    for members in steps_of(batch):
        micro_batches = model.builder.build(batch, members)
        with device_scope():
            logs = run_micro_batches(model.chunks, groups, micro_batches, objective, forward_only=True)
        for micro_batch, scores in (log["scored"] for log in logs):
            columns = gather_responses(scores, micro_batch.packed, gradient="none")
            found.update(zip(micro_batch.members, (column.cpu().numpy() for column in columns), strict=True))
    return [found[member] for member in range(len(batch.tokens))] if groups.is_last_stage else None


def compare_log_probs(
    found: Sequence[npt.NDArray[np.float32]] | None, batch: RankBatch, groups: Groups
) -> dict[str, float]:
    """Largest and mean absolute difference to the batch's own log-probs, over the unmasked tokens of all ranks.

    Both are 0 where nothing was compared, and NaN where a log-prob is not finite.
    """
    differences = np.zeros(0)
    if found is not None and groups.tp_rank == 0 and groups.cp_rank == 0:
        pairs = zip(found, batch.old_log_probs, batch.loss_masks, strict=True)
        differences = np.concatenate([differences, *(np.abs(new - old)[mask != 0] for new, old, mask in pairs)])
    reduced = all_reduce({"max": Max.of(differences), "mean": Mean.of(differences), "tokens": Count.of(differences)})
    return reduced if reduced["tokens"] else {"max": 0.0, "mean": 0.0, "tokens": 0.0}
