"""The model that the program makes: a real Hugging Face directory, the same for the same seed."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vime_train.config import ModelSection
from vime_train.data import CharTokenizer, HfTokenizer, make_model
from vime_train.data.arithmetic import ALPHABET

TOKENIZER = CharTokenizer(alphabet=ALPHABET)


@given(st.text(alphabet=ALPHABET))
def test_text_survives_the_tokenizer(text: str) -> None:
    tokens = TOKENIZER.encode(text)
    assert len(tokens) == len(text)
    assert TOKENIZER.decode((*tokens, TOKENIZER.eos_token_id, TOKENIZER.pad_token_id)) == text


def test_a_character_outside_the_alphabet_is_told() -> None:
    with pytest.raises(ValueError, match=r"'a\+b' holds \['\+'\]"):
        TOKENIZER.encode("a+b")


def test_an_alphabet_must_fit_and_not_repeat() -> None:
    with pytest.raises(ValueError, match="repeats a character"):
        CharTokenizer(alphabet="aba")
    with pytest.raises(ValueError, match="need vocab_size >= 5, got 4"):
        CharTokenizer(alphabet="abc", vocab_size=4)


def test_the_saved_tokenizer_is_the_same_in_transformers(tmp_path: Path) -> None:
    TOKENIZER.save(str(tmp_path))
    saved = HfTokenizer(str(tmp_path))
    assert (saved.eos_token_id, saved.pad_token_id, saved.vocab_size) == (1, 0, 64)
    rng = random.Random(0)
    for length in range(60):
        text = "".join(rng.choices(ALPHABET, k=length))
        assert saved.encode(text) == TOKENIZER.encode(text)
        assert saved.decode((*TOKENIZER.encode(text), 1)) == text


def test_a_model_is_the_same_for_the_same_seed_only(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        make_model(str(tmp_path / name), ModelSection(), TOKENIZER, seed=seed)
    weights = {name: (tmp_path / name / "model.safetensors").read_bytes() for name in "abc"}
    assert weights["a"] == weights["b"] != weights["c"]


@pytest.mark.slow
def test_transformers_loads_the_model_whole(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    section = ModelSection(num_hidden_layers=3, init_std=0.1)
    make_model(str(tmp_path), section, TOKENIZER, seed=0)
    model, report = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert type(model).__name__ == "Qwen3ForCausalLM"
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    embedding = model.get_input_embeddings().weight
    assert embedding.data_ptr() != model.get_output_embeddings().weight.data_ptr()
    assert embedding.std().item() == pytest.approx(0.1, rel=0.05)
    assert torch.isfinite(model(torch.tensor([[2, 3, 4]])).logits).all()


@pytest.mark.slow
def test_transformers_loads_a_model_with_experts_whole(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    section = ModelSection(num_experts=6, num_experts_per_tok=3, moe_intermediate_size=48)
    make_model(str(tmp_path), section, TOKENIZER, seed=0)
    model, report = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert type(model).__name__ == "Qwen3MoeForCausalLM"
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert (model.config.num_experts, model.config.num_experts_per_tok) == (6, 3)
    assert model.config.norm_topk_prob is True
    assert model.model.layers[1].mlp.experts.down_proj.shape == (6, 64, 48)
    assert torch.isfinite(model(torch.tensor([[2, 3, 4]])).logits).all()


def test_the_head_is_untied(tmp_path: Path) -> None:
    make_model(str(tmp_path), ModelSection(), TOKENIZER, seed=0)
    assert json.loads((tmp_path / "config.json").read_text())["tie_word_embeddings"] is False


def test_the_demo_model_has_the_size_of_its_recipe(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    make_model(str(tmp_path), ModelSection(), TOKENIZER, seed=0)
    assert sum(weight.size for weight in load_file(tmp_path / "model.safetensors").values()) == 131_520
