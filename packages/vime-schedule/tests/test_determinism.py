"""Law S5 across processes: the same bytes under every hash seed and Python version found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import vime_schedule

PROGRAM = """
import random
from vime_schedule import FixedSize, ParallelLayout, PolynomialCost, TokenBudget, build_dp_schedule

for seed in range(6):
    draw = random.Random(seed)
    lengths = [300 + int(8000 * draw.random() ** 3) for _ in range(400)]
    for objective in ("step", "lockstep", "balanced", "pipeline"):
        plan = build_dp_schedule(
            lengths,
            layout=ParallelLayout(dp=8, pp=2, vpp=2) if seed % 2 else ParallelLayout(dp=8),
            batching=FixedSize(micro_batch_size=5) if seed == 4 else TokenBudget(max_tokens_per_gpu=9000),
            global_batch_size=200,
            rollout_ids=[f"rollout-{k // 2}" for k in range(400)],
            signatures=[("text", "image")[k % 7 == 0] for k in range(400)] if seed == 5 else None,
            cost=PolynomialCost(0.1, 3.3, 1e-3),
            objective=objective,
        )
        print(plan.fingerprint)
"""
SOURCES = Path(vime_schedule.__file__).parents[1]


def interpreters() -> list[str]:
    """Other Pythons that can run the package, by the newest first; only this one where there are none."""
    found = [shutil.which(f"python3.{minor}") for minor in (14, 13, 12, 11)]
    found += map(str, Path.home().glob(".pyenv/versions/3.1[1-9].*/bin/python"))
    return sorted({path for path in found if path is not None and runs(path)})


def runs(python: str) -> bool:
    check = "import sys; sys.exit(sys.version_info < (3, 11))"
    return subprocess.run([python, "-c", check], capture_output=True, timeout=30, check=False).returncode == 0


def fingerprints(python: str, hash_seed: str) -> Sequence[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run(
        [python, "-c", PROGRAM], capture_output=True, encoding="utf-8", timeout=120, env=environment, check=True
    )
    return done.stdout.split()


@pytest.fixture(scope="module")
def expected() -> Sequence[str]:
    found = fingerprints(sys.executable, "0")
    assert len(set(found)) >= 12
    return found


@pytest.mark.parametrize("hash_seed", ["1", "4242"])
def test_hash_seeds_do_not_matter(expected: Sequence[str], hash_seed: str) -> None:
    assert fingerprints(sys.executable, hash_seed) == expected


@pytest.mark.parametrize("python", interpreters())
def test_python_versions_do_not_matter(expected: Sequence[str], python: str) -> None:
    """Python 3.12 sums floats another way than 3.11, which must not show."""
    assert fingerprints(python, "7") == expected
