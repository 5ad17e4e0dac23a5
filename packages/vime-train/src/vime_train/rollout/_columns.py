"""The columns of a sample: those that vime-train knows, and a user's own, which pass through to hooks and dumps.

    per sample    tokens, response_length, reward, status, weight_version, rollout_id, group_id
    per token     loss_mask, rollout_log_probs, weight_versions, and `Sample.columns`: a user's own, by name
    per step      weights, step_mask_sums, step_rollouts of a `RankBatch`: made from the whole step, before it is cut
    the plan      schedule and fingerprint of a `RankBatch`
    the trainers  `TRAINER_COLUMNS`, per token, in `RankBatch.columns` beside a user's own

Always true: a user's column has one number per response token, a name that nothing else has, and stands on every sample
of an iteration or on none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np

from vime_train.rollout._batch import RankBatch
from vime_train.rollout._samples import Rollout, Sample

if TYPE_CHECKING:
    import numpy.typing as npt

TRAINER_COLUMNS = ("rollout_log_probs", "reference_log_probs", "teacher_log_probs", "values", "returns")
_TAKEN = {field.name for kind in (Sample, RankBatch) for field in fields(kind)} | {*TRAINER_COLUMNS, "old", "base"}


def column_problems(sample: Sample) -> Iterator[str]:
    """What is wrong with a sample's own columns."""
    for name, values in sample.columns.items():
        if name in _TAKEN:
            yield f"has a column {name!r}: the name is taken, choose another"
        if len(values) != sample.response_length:
            yield (
                f"has {len(values)} numbers in its column {name!r} for a response of {sample.response_length} tokens: "
                "one each is needed"
            )


def differing_columns(rollouts: Sequence[Rollout]) -> tuple[Rollout, set[str]] | None:
    """The first rollout with a sample that lacks columns of the others, or has more, and the names of those."""
    names: set[str] | None = None
    for rollout in rollouts:
        for sample in rollout.samples:
            if names is not None and sample.columns.keys() != names:
                return rollout, names ^ sample.columns.keys()
            names = set(sample.columns)
    return None


def own_columns(samples: Sequence[Sample]) -> dict[str, tuple[npt.NDArray[np.float32], ...]]:
    """The users' columns of samples that all have the same ones."""
    names = sorted(samples[0].columns) if samples else []
    return {name: tuple(np.asarray(sample.columns[name], np.float32) for sample in samples) for name in names}
