"""Files that a run would read are looked at before anything starts (law T4)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from vime_train.config import Machine, ModelShape, launch_problems, load_config
from vime_train.config._safetensors import damage, stored_shapes

SIZES = {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_size": 64,
    "vocab_size": 64,
    "max_position_embeddings": 512,
}
LAPTOP = Machine(cores=2, memory_gib=24.0, gpus=0)


def problems(*overrides: str) -> str:
    config = load_config(overrides=[*overrides])
    shape = ModelShape.of(config.model, vocab_size=64)
    return "\n".join(launch_problems(config, machine=LAPTOP, shape=shape))


def save(directory: Path, iterations: int) -> str:
    for iteration in range(1, iterations + 1):
        place = directory / f"iteration-{iteration:06d}"
        place.mkdir(parents=True)
        for name in ("rollouts.jsonl", "columns.safetensors"):
            (place / name).write_text("")
    return f"debug.load_rollouts={directory}"


def test_saved_rollouts_must_be_there_for_every_iteration(tmp_path: Path) -> None:
    given = save(tmp_path / "rollouts", 3)
    assert problems(given, "train.iterations=3") == ""
    text = problems(given, "train.iterations=5")
    assert "there is no " in text
    assert "iteration-000004/rollouts.jsonl; the rollouts of iterations 1 to train.iterations = 5" in text
    assert text.endswith("Set train.iterations = 3.")
    (tmp_path / "rollouts" / "iteration-000001" / "columns.safetensors").unlink()
    assert "iteration-000001/columns.safetensors" in problems(given, "train.iterations=3")
    assert "there is no nowhere/iteration-000001" in problems("debug.load_rollouts=nowhere")


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    file = tmp_path / "model.safetensors"
    save_file({"a": np.zeros((3, 5), np.float32), "b": np.zeros(7)}, file, metadata={"format": "pt"})
    return file


def test_a_safetensors_file_cut_off_anywhere_is_seen(weights: Path) -> None:
    """Without reading its tensors: its header tells how long it has to be."""
    content = weights.read_bytes()
    assert damage(weights) is None
    for keep in range(len(content)):
        weights.write_bytes(content[:keep])
        assert damage(weights) is not None, keep
    weights.write_bytes(content + b"x")
    assert damage(weights) == f"has {len(content) + 1} of {len(content)} bytes: it is cut off or damaged"
    weights.write_bytes(content[:8] + bytes(len(content) - 8))
    assert damage(weights) == "has a header that cannot be read: it is damaged"


def test_shapes_are_read_from_headers(weights: Path) -> None:
    assert stored_shapes(weights.parent) == {"a": (3, 5), "b": (7,)}
    weights.write_bytes(weights.read_bytes()[:20])
    assert stored_shapes(weights.parent) == {}


def test_a_model_too_large_for_the_memory_is_refused(tmp_path: Path) -> None:
    """A file of holes: 2 GiB of weights, which trainers and engine hold seven times in fp32."""
    (tmp_path / "config.json").write_text(json.dumps(SIZES))
    entry = {"a": {"dtype": "F32", "shape": [2**29], "data_offsets": [0, 2**31]}}
    header = json.dumps(entry).encode()
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + 2**31)
    text = problems(f"model.path={tmp_path}", "layout.dp=2")
    assert "2 trainer ranks and 1 engines need about 19 GiB" not in text, "there are 24"
    text = problems(f"model.path={tmp_path}", "layout.dp=4")
    assert "4 trainer ranks and 1 engines need about 28 GiB of memory, this machine has 24" in text


@pytest.mark.parametrize("key", ["model.path", "algorithm.kl.reference", "algorithm.distillation.teacher"])
def test_weights_that_were_cut_off_are_refused_at_launch(weights: Path, key: str) -> None:
    (weights.parent / "config.json").write_text(json.dumps(SIZES))
    given = f"{key}={weights.parent}"
    assert str(weights) not in problems(given)
    weights.write_bytes(weights.read_bytes()[:-1])
    assert f"{key} = {str(weights.parent)!r}: {weights} has " in problems(given)
