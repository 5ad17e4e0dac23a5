"""Samples of other weights than the trainers hold are refused before anything is compared."""

from __future__ import annotations

from typing import cast

import pytest

from vime_train.cluster import Cluster, EnginePool, TrainerGroup
from vime_train.config import RunConfig
from vime_train.phases import WeightSync, WeightSyncError
from vime_train.rollout import Sample


def sample(version: int) -> Sample:
    return Sample(
        tokens=(2, 3, 1),
        response_length=2,
        loss_mask=(1, 1),
        rollout_log_probs=(-1.0, -1.0),
        rollout_id=0,
        group_id=0,
        reward=0.0,
        status="completed",
        weight_version=version,
    )


@pytest.mark.parametrize("versions", [[3], [4, 5], [5, 6]])
def test_samples_of_another_version_are_refused(versions: list[int]) -> None:
    """A rollout function that keeps answers for later would train on stale samples without a sign."""
    nobody = object()
    sync = WeightSync(cast(Cluster, nobody), cast(TrainerGroup, nobody), cast(EnginePool, nobody), RunConfig())
    sync.version = 5
    with pytest.raises(WeightSyncError, match=r"sync 5: samples carry weight versions .*, the trainers hold 5"):
        sync.check([sample(version) for version in versions])
