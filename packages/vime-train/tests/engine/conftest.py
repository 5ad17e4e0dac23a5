"""A real vLLM engine, started once, and three models of the same shape."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from vime_train.cluster import Cluster, EnginePool
from vime_train.config import ModelSection, RunConfig
from vime_train.data import CharTokenizer, make_model
from vime_train.data.arithmetic import ALPHABET


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Hugging Face directories with different weights."""
    paths = [str(tmp_path_factory.mktemp("model")) for _ in range(3)]
    for seed, path in enumerate(paths):
        make_model(path, ModelSection(), CharTokenizer(alphabet=ALPHABET), seed=seed)
    return paths


@pytest.fixture(scope="package")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def engines(models: list[str], logs: Path) -> Iterator[EnginePool]:
    """Two engines that serve model 0."""
    config = RunConfig.model_validate({"layout": {"dp": 1}, "engine": {"engines": 2}})
    with Cluster(config, root=logs, logs=logs) as cluster:
        pool = cluster.begin_engines(models[0], max_model_len=96)
        pool.ready()
        yield pool
