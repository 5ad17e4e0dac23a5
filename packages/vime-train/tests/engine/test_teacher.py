"""A served teacher against transformers. Real vLLM, real weights, and a head tied to the embedding."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from vime_train.cluster import Cluster, TeacherPool
from vime_train.config import RunConfig
from vime_train.engine import ScoredSequence

LONGEST = 96


@pytest.fixture(scope="module")
def teacher_model(models: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Model 2 with its head tied, which a policy may not have."""
    path = tmp_path_factory.mktemp("teacher") / "model"
    shutil.copytree(models[2], path)
    weights = load_file(path / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    settings = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(settings | {"tie_word_embeddings": True}))
    return path


@pytest.fixture(scope="module")
def teacher(teacher_model: Path, logs: Path) -> Iterator[TeacherPool]:
    distillation = {"coefficient": 1.0, "teacher": str(teacher_model), "engines": 1}
    config = {"layout": {"dp": 1}, "algorithm": {"advantage": "none", "distillation": distillation}}
    with Cluster(RunConfig.model_validate(config), root=logs, logs=logs) as cluster:
        pool = cluster.begin_teacher(max_model_len=LONGEST)
        assert pool is not None
        pool.ready()
        yield pool


def sequences() -> list[ScoredSequence]:
    """Of every length up to the longest, with one response token up to all but the first."""
    draw = random.Random(0)
    lengths = [2, 3, 17, LONGEST - 1, LONGEST, *(draw.randint(2, LONGEST) for _ in range(20))]
    return [
        ScoredSequence(
            tokens=tuple(draw.randint(2, 27) for _ in range(length)), response_length=draw.randint(1, length - 1)
        )
        for length in lengths
    ]


def test_log_probs_are_those_of_transformers_also_after_the_teacher_was_killed(
    teacher: TeacherPool, teacher_model: Path
) -> None:
    model = AutoModelForCausalLM.from_pretrained(teacher_model, dtype=torch.float32).eval()
    asked = sequences()
    first = teacher.log_probs(asked)
    os.kill(teacher.process_ids()[0], signal.SIGKILL)
    for scores in (first, teacher.log_probs(asked)):
        for sequence, found in zip(asked, scores, strict=True):
            tokens = torch.tensor([sequence.tokens])
            with torch.no_grad():
                log_probs = model(tokens).logits[0, :-1].log_softmax(-1).gather(-1, tokens[0, 1:, None])[:, 0]
            assert found == pytest.approx(log_probs[-sequence.response_length :].tolist(), abs=1e-4)
    assert teacher.restarts == 1


def test_nothing_to_score(teacher: TeacherPool) -> None:
    assert teacher.log_probs([]) == []
