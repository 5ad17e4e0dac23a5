"""Weights go from a Hugging Face directory into any layout and back, bit for bit."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

LAYOUTS = [{}, {"tp": 2}, {"pp": 2}, {"pp": 2, "vpp": 2}, {"tp": 2, "pp": 2}, {"dp": 2, "cp": 2}]
MODELS = [("qwen3", {}), ("llama", {}), ("qwen3", {"tied": True}), ("llama", {"tied": True})]


@pytest.mark.parametrize(
    ("layout", "family", "options"),
    [(layout, *model) for layout, model in itertools.product(LAYOUTS, MODELS)],
    ids=str,
)
def test_an_export_is_what_was_loaded(
    layout: dict[str, int],
    family: str,
    options: dict[str, bool],
    start: Callable[..., object],
    run_config: Callable[..., object],
    tiny_model: Callable[..., Path],
    tmp_path: Path,
) -> None:
    model = tiny_model(family, **options)
    start(run_config(layout), model).call("export", str(tmp_path / "out"))
    before, after = load_file(model / "model.safetensors"), load_file(tmp_path / "out" / "model.safetensors")
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        np.testing.assert_array_equal(after[name], tensor, err_msg=name)


def test_an_export_takes_the_config_and_tokenizer_along_and_replaces_what_was_there(
    start: Callable[..., object], run_config: Callable[..., object], tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "stale").write_text("from an older export")
    start(run_config({"tp": 2})).call("export", str(out))
    assert (out / "config.json").read_bytes() == (tiny_model() / "config.json").read_bytes()
    assert (out / "tokenizer.json").exists()
    assert not (out / "stale").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "nothing is left aside"


def test_tied_embeddings_stay_tied_across_pipeline_stages(
    start: Callable[..., object],
    run_config: Callable[..., object],
    plan_batches: Callable[..., object],
    tiny_model: Callable[..., Path],
    tmp_path: Path,
) -> None:
    """The first and the last stage hold a copy each; their gradients must be added before the step."""
    weights = []
    for layout in ({}, {"pp": 2}):
        config = run_config(layout, optimizer={"lr": 100.0, "adam_eps": 1000.0, "clip_grad": 1e3})
        job = start(config, tiny_model("qwen3", tied=True))
        job.train(plan_batches(config))
        job.call("export", str(tmp_path / "out"))
        weights.append(load_file(tmp_path / "out" / "model.safetensors")["model.embed_tokens.weight"])
    np.testing.assert_allclose(weights[1], weights[0], atol=1e-5)


def test_large_models_are_written_in_parts_with_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from vime_train.megatron import _hf_directory

    monkeypatch.setattr(_hf_directory, "SHARD_BYTES", 100)
    tensors = {f"weight.{number}": torch.full((10,), float(number)) for number in range(5)}  # 40 bytes each
    _hf_directory._write_weights(tmp_path, tensors.items())
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert sorted(path.name for path in tmp_path.glob("*.safetensors")) == [
        f"model-{part:05d}-of-00003.safetensors" for part in (1, 2, 3)
    ]
    assert index["metadata"]["total_size"] == 200
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(load_file(tmp_path / index["weight_map"][name])[name], tensor.numpy())


@pytest.fixture
def damaged(tiny_model: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    """A copy of the tiny model, changed by the test."""

    def make(change: Callable[[dict[str, np.ndarray], dict[str, object]], None]) -> Path:
        copy = tmp_path / "damaged"
        shutil.copytree(tiny_model(), copy)
        weights, config = load_file(copy / "model.safetensors"), json.loads((copy / "config.json").read_text())
        change(weights, config)
        save_file(weights, copy / "model.safetensors")
        (copy / "config.json").write_text(json.dumps(config))
        return copy

    return make


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda weights, config: weights.pop("model.norm.weight"), "lacks ['model.norm.weight']"),
        (lambda weights, config: weights.update(extra=np.zeros(3)), "has ['extra']"),
        (lambda weights, config: config.update(intermediate_size=32), "the weights are of another model"),
        (lambda weights, config: config.update(architectures=["GPT2LMHeadModel"]), "'GPT2LMHeadModel'"),
        (lambda weights, config: config.update(attention_bias=True), "attention_bias=True"),
        (lambda weights, config: config.update(rope_parameters={"rope_type": "yarn"}), "'yarn'"),
    ],
    ids=["missing", "unknown", "shape", "architecture", "bias", "rope"],
)
def test_a_directory_of_another_model_is_refused(
    change: Callable[..., None],
    text: str,
    damaged: Callable[..., Path],
    start: Callable[..., object],
    run_config: Callable[..., object],
) -> None:
    with pytest.raises(Exception, match="ValueError: ") as error:
        start(run_config({}), damaged(change))
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        ({"tp": 4}, "tp=4 does not divide the model's 2 key and value heads: set layout.tp to one of [1, 2]"),
        ({"pp": 3}, "pp=3 x vpp=1 = 3 stages do not divide the model's 4 layers"),
        ({"vpp": 2}, "vpp=2 interleaves pipeline stages but pp=1"),
    ],
)
def test_a_layout_that_the_model_cannot_be_cut_into_is_refused(
    layout: dict[str, int], text: str, run_config: Callable[..., object], tiny_model: Callable[..., Path]
) -> None:
    from vime_train.megatron._architecture import check_layout, read_architecture

    with pytest.raises(ValueError, match="layout: ") as error:
        check_layout(read_architecture(str(tiny_model())), run_config(layout).layout)
    assert text in str(error.value)
