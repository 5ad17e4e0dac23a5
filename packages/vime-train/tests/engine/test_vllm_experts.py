"""A model with experts in a real engine: its log-probs are transformers', also after its weights were replaced.

vLLM's CPU build packs experts for its kernel and would take new ones unpacked; see `engine/_vllm_worker.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from vime_train.cluster import Cluster, EnginePool
from vime_train.config import ModelSection, RunConfig
from vime_train.data import CharTokenizer, make_model
from vime_train.data.arithmetic import ALPHABET
from vime_train.engine import GenerationRequest

SECTION = ModelSection(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=48, init_std=0.2)
REQUESTS = [
    GenerationRequest(
        prompt_tokens=tuple(range(2, 3 + length)),
        num_samples=2,
        temperature=1.0,
        top_p=1.0,
        max_new_tokens=24,
        stop_token_ids=(1,),
        seed=length,
    )
    for length in range(7)
]


@pytest.fixture(scope="module")
def experts(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Directories with different weights."""
    paths = [str(tmp_path_factory.mktemp("experts")) for _ in range(3)]
    for seed, path in enumerate(paths):
        make_model(path, SECTION, CharTokenizer(alphabet=ALPHABET), seed=seed)
    return paths


@pytest.fixture
def engine(experts: list[str], logs: Path) -> Iterator[EnginePool]:
    with Cluster(RunConfig.model_validate({"layout": {"dp": 1}}), root=logs, logs=logs) as cluster:
        pool = cluster.begin_engines(experts[0], max_model_len=96)
        pool.ready()
        yield pool


def largest_difference(engine: EnginePool, path: str) -> float:
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    found = []
    for asked, completions in zip(REQUESTS, engine.generate(REQUESTS), strict=True):
        for completion in completions:
            tokens = torch.tensor([asked.prompt_tokens + completion.tokens])
            with torch.no_grad():
                scores = model(tokens).logits[0].log_softmax(-1)
            own = scores[:-1].gather(1, tokens[0, 1:, None])[-len(completion.tokens) :, 0]
            found.append(float((own - torch.tensor(completion.log_probs)).abs().max()))
    return max(found)


def test_log_probs_of_experts_are_those_of_transformers_before_and_after_a_reload(
    engine: EnginePool, experts: list[str]
) -> None:
    assert largest_difference(engine, experts[0]) < 1e-4
    for version in (1, 2):
        engine.load_weights(experts[version], version=version)
        assert largest_difference(engine, experts[version]) < 1e-4
    assert largest_difference(engine, experts[1]) > 0.1  # stale weights are seen
