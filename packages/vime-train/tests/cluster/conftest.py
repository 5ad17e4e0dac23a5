"""A local Ray for this room's tests, and small objects to hold in actors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vime_train.cluster import Cluster
from vime_train.cluster._calls import Handle
from vime_train.config import RunConfig


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def cluster(logs: Path) -> Iterator[Cluster]:
    """Ray with room for two trainers and two engines."""
    config = RunConfig.model_validate({"layout": {"dp": 2}, "engine": {"engines": 2}})
    with Cluster(config, root=logs, logs=logs) as started:
        yield started


@pytest.fixture
def spawn(cluster: Cluster) -> Iterator[Callable[[str], Handle]]:
    """Starts an actor by name; it is killed after the test."""
    handles: list[Handle] = []

    def start(name: str) -> Handle:
        handles.append(cluster._spawn(name, {}))
        return handles[-1]

    yield start
    for handle in handles:
        handle.kill()
