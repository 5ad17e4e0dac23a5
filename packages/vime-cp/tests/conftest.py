"""Test settings, the slow oracle as a fixture, and a way to run one script as several real processes."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

TESTS = Path(__file__).parent

# VIME_EXAMPLES=1000 searches longer than the continuous integration does.
settings.register_profile(
    "vime",
    max_examples=int(os.environ.get("VIME_EXAMPLES", "40")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("vime")


@pytest.fixture(scope="session")
def oracle() -> ModuleType:
    """The module `_oracle.py`: losses by their definition, one sample and one token at a time."""
    return load("_oracle")


@pytest.fixture(scope="session")
def loss_oracle() -> ModuleType:
    """The module `_loss_oracle.py`: the formula of every loss and advantage, for whole samples."""
    return load("_loss_oracle")


def load(name: str) -> ModuleType:
    """Import a module of this folder, which is not a package."""
    spec = importlib.util.spec_from_file_location(f"vime_cp{name}", TESTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def run_ranks(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[Any]]:
    """Run a script of this folder as ranks of one gloo world; each rank's result is what it wrote to ``$RESULT``."""

    def run(script: str, world_size: int, *, timeout_seconds: float = 400) -> list[Any]:
        tmp_path = tmp_path_factory.mktemp("ranks")
        processes, results = [], []
        for rank in range(world_size):
            result = tmp_path / f"rank{rank}.json"
            results.append(result)
            env = os.environ | {
                "RANK": str(rank),
                "WORLD_SIZE": str(world_size),
                "RENDEZVOUS": f"file://{tmp_path / 'rendezvous'}",
                "RESULT": str(result),
                "OMP_NUM_THREADS": "1",
                "CUDA_VISIBLE_DEVICES": "",
            }
            log = (tmp_path / f"rank{rank}.log").open("w")
            command = [sys.executable, str(TESTS / script)]
            processes.append(subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT))
            log.close()
        try:
            codes = [process.wait(timeout=timeout_seconds) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
        logs = [(tmp_path / f"rank{rank}.log").read_text()[-4000:] for rank in range(world_size)]
        assert codes == [0] * world_size, "\n".join(f"--- rank {rank}\n{log}" for rank, log in enumerate(logs))
        return [json.loads(result.read_text()) for result in results]

    return run
