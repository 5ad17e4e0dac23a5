"""On-policy distillation in a whole run, from a teacher in the trainers and from the same one behind an engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from vime_train.config import ModelSection
from vime_train.data import make_model
from vime_train.data.arithmetic import ArithmeticSums

if TYPE_CHECKING:
    from conftest import Run

pytestmark = pytest.mark.timeout(1200)

CONFIG = str(Path(__file__).with_name("tiny.toml"))
SETTINGS = (
    "algorithm.advantage=none",
    "algorithm.distillation.coefficient=1.0",
    "rollout.drop_zero_variance=false",
    "supervised.steps=0",
    "train.iterations=3",
    "optimizer.lr=3e-3",
    "evaluation.problems=0",
)


def distil(root: Path, teacher: Path, engines: int, command: Run) -> list[dict[str, float]]:
    own = (f"run_dir={root}", f"algorithm.distillation.teacher={teacher}", f"algorithm.distillation.engines={engines}")
    done = command(root, "run", CONFIG, *(word for setting in (*SETTINGS, *own) for word in ("--set", setting)))
    assert done.code == 0, done.errors
    return [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()][1:]


def test_a_served_teacher_teaches_as_one_in_the_trainers_does(tmp_path: Path, command: Run) -> None:
    teacher = tmp_path / "teacher"
    make_model(str(teacher), ModelSection(), ArithmeticSums().tokenizer, seed=7)
    inside = distil(tmp_path / "inside", teacher, 0, command)
    served = distil(tmp_path / "served", teacher, 1, command)
    for one, other in zip(inside, served, strict=True):
        assert other["train/reverse_kl"] == pytest.approx(one["train/reverse_kl"], rel=1e-3)
        assert other["time/score"] > 0
        assert "time/score" not in one
    assert served[-1]["train/reverse_kl"] < served[0]["train/reverse_kl"]
    assert (tmp_path / "served" / "logs" / "teacher-0.log").is_file()
