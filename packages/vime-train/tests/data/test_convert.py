"""Models that cannot be trained and served as they are become ones that can."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from vime_train.cli import main
from vime_train.config import ModelSection
from vime_train.data import CharTokenizer, DataError, convert_model, make_model
from vime_train.data.arithmetic import ALPHABET


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face directory whose LM head is its embedding."""
    path = tmp_path_factory.mktemp("models") / "tied"
    make_model(str(path), ModelSection(), CharTokenizer(alphabet=ALPHABET), seed=0)
    model = AutoModelForCausalLM.from_pretrained(path)
    model.config.tie_word_embeddings = True
    model.tie_weights()
    model.save_pretrained(path)
    assert "lm_head.weight" not in load_file(path / "model.safetensors")
    return path


def test_a_tied_model_gets_a_head_of_its_own_and_computes_the_same(tied: Path, tmp_path: Path) -> None:
    untied = tmp_path / "untied"
    assert main(["convert", str(tied), str(untied)]) == 0
    weights = load_file(untied / "model.safetensors")
    assert torch.equal(weights["lm_head.weight"], weights["model.embed_tokens.weight"])
    assert json.loads((untied / "config.json").read_text())["tie_word_embeddings"] is False
    assert (untied / "tokenizer.json").exists()
    tokens = torch.arange(2, 22)[None]
    before, after = (AutoModelForCausalLM.from_pretrained(path)(tokens).logits for path in (tied, untied))
    assert torch.equal(before, after)


def test_a_converted_model_may_be_trained(tied: Path, tmp_path: Path) -> None:
    untied = tmp_path / "untied"
    convert_model(str(tied), untied)
    assert main(["plan", "arithmetic.toml", "--set", f"model.path='{tied}'"]) == 2
    assert main(["plan", "arithmetic.toml", "--set", f"model.path='{untied}'"]) == 0


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere", "nowhere: a GGUF file or a Hugging Face directory is needed"),
        ("no_such_package:model.gguf", "no package 'no_such_package' is installed"),
        ("vime_train:model.gguf", "model.gguf is neither"),
        (".", r"\. cannot be read as a model"),
    ],
)
def test_what_is_no_model_is_told(source: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=message):
        convert_model(source, tmp_path / "out")


def test_nothing_is_left_of_a_conversion_that_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "damaged.gguf").write_bytes(b"not a model")
    assert main(["convert", str(tmp_path / "damaged.gguf"), str(tmp_path / "out")]) != 0
    assert [path.name for path in tmp_path.iterdir()] == ["damaged.gguf"]
    assert "Traceback" not in capsys.readouterr().err


def test_an_output_that_exists_is_kept(tied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(tied), str(tmp_path)]) == 2
    assert "exists: name a directory that does not" in capsys.readouterr().err
