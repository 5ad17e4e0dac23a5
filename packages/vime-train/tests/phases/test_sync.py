"""Samples of other weights than the trainers hold are refused before anything is compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import cast

import numpy as np
import pytest

from vime_train.cluster import Cluster, EnginePool, TrainerGroup
from vime_train.config import EngineSection, RolloutSection, RunConfig
from vime_train.phases import WeightSync, WeightSyncError
from vime_train.rollout import RankBatch, Sample


def sample(version: int, *versions: int) -> Sample:
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
        weight_versions=versions,
    )


@pytest.mark.parametrize("versions", [[3], [4, 5], [5, 6]])
def test_samples_of_another_version_are_refused(versions: list[int]) -> None:
    """A rollout function that keeps answers for later would train on stale samples without a sign."""
    nobody = object()
    sync = WeightSync(cast(Cluster, nobody), cast(TrainerGroup, nobody), cast(EnginePool, nobody), RunConfig())
    sync.version = 5
    with pytest.raises(WeightSyncError, match=r"sync 5: samples carry weight versions .*, the engines held 5"):
        sync.check([sample(version) for version in versions])


PARTIAL = RunConfig(rollout=RolloutSection(partial_rollout=True))


class Trainers:
    """Trainers under whose weights every token has log-prob -1; they keep what they were asked to compare."""

    def __init__(self) -> None:
        self.compared = 0

    def log_prob_difference(self, batches: Sequence[RankBatch], *, doing: str) -> dict[str, float]:
        differences = [
            np.abs(old + 1)[mask != 0]
            for batch in batches
            for old, mask in zip(batch.old_log_probs, batch.loss_masks, strict=True)
        ]
        joined = np.concatenate(differences)
        self.compared += len(joined)
        return {"max": float(joined.max()), "mean": float(joined.mean())}


def partial_sync(trainers: Trainers) -> WeightSync:
    nobody = object()
    sync = WeightSync(cast(Cluster, nobody), cast(TrainerGroup, trainers), cast(EnginePool, nobody), PARTIAL)
    sync.version = 5
    return sync


def test_only_tokens_of_the_current_weights_are_compared() -> None:
    """The older token of a resumed answer has another log-prob by now, and that is no fault of the sync."""
    older = dataclasses.replace(sample(5, 4, 5), rollout_log_probs=(-9.0, -1.0))
    trainers = Trainers()
    figures = partial_sync(trainers).check([older, sample(4), sample(5)])
    assert trainers.compared == 3
    assert figures["check/max_log_prob_difference"] == 0


def test_a_current_token_with_another_log_prob_still_ends_the_run() -> None:
    stale = dataclasses.replace(sample(5, 4, 5), rollout_log_probs=(-1.0, -9.0))
    with pytest.raises(WeightSyncError, match="differ by up to 8 "):
        partial_sync(Trainers()).check([stale])


def test_tokens_that_are_masked_anyway_are_not_compared() -> None:
    tool = dataclasses.replace(sample(5, 5, 5), loss_mask=(0, 1), rollout_log_probs=(0.0, -1.0))
    trainers = Trainers()
    partial_sync(trainers).check([tool])
    assert trainers.compared == 1


def test_an_iteration_of_buffered_groups_has_nothing_to_compare() -> None:
    assert partial_sync(Trainers()).check([sample(3), sample(4, 3, 4)]) == {}


def test_tokens_of_weights_to_come_are_refused_in_a_partial_rollout_too() -> None:
    with pytest.raises(WeightSyncError, match=r"carry weight versions \[5, 6\], the engines held 5"):
        partial_sync(Trainers()).check([sample(6, 5, 6)])


def test_a_bounded_check_looks_at_every_group_before_it_looks_twice() -> None:
    """Engines answer whole groups, so a stale engine is seen though only three of nine samples are compared."""
    config = RunConfig(engine=EngineSection(max_checked_samples=3))
    trainers, nobody = Trainers(), object()
    sync = WeightSync(cast(Cluster, nobody), cast(TrainerGroup, trainers), cast(EnginePool, nobody), config)
    right = [dataclasses.replace(sample(0), rollout_id=place, group_id=place // 3) for place in range(9)]
    assert sync.check(right)["check/max_log_prob_difference"] == 0
    assert trainers.compared == 3 * 2
    stale = [dataclasses.replace(one, rollout_log_probs=(-1.0, -9.0)) if one.group_id == 2 else one for one in right]
    with pytest.raises(WeightSyncError, match="log-probs of 3 samples differ by up to 8 "):
        sync.check(stale)
