"""What several rooms' tests share: the order they run in, a small engine that answers from a script, and small runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings

from vime_train.config import RunConfig, load_config
from vime_train.data import CharTokenizer
from vime_train.data.arithmetic import ALPHABET
from vime_train.engine import Completion, GenerationRequest

settings.register_profile("vime", deadline=None, max_examples=int(os.environ.get("VIME_EXAMPLES", "50")))
settings.load_profile("vime")

SMALL = (
    "supervised.steps=360",
    "data.max_prompt_tokens=32",
    "rollout.prompts_per_iteration=4",
    "rollout.rollouts_per_prompt=4",
    "train.global_batch_size=8",
)

HERE = Path(__file__).parent
LONGEST_FIRST = tuple(HERE / room for room in ("e2e", "megatron", "engine", "cluster"))
"""Rooms whose tests take minutes: where two workers share the files, the short ones fill the end."""

Script = Callable[[str, int, int], str]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _place(item.path.parent))


def _place(room: Path) -> int:
    return LONGEST_FIRST.index(room) if room in LONGEST_FIRST else len(LONGEST_FIRST)


@dataclass
class ScriptedEngine:
    """An engine whose answer to a prompt is `script(prompt text, sample number, seed)`; log-probs count down."""

    script: Script
    version: int = 0
    requests: list[GenerationRequest] = field(default_factory=list)
    tokenizer: CharTokenizer = field(default_factory=lambda: CharTokenizer(alphabet=ALPHABET))

    def generate(self, requests: Sequence[GenerationRequest]) -> list[list[Completion]]:
        self.requests += requests
        return [[self._answer(request, sample) for sample in range(request.num_samples)] for request in requests]

    def load_weights(self, directory: str, *, version: int) -> None:
        self.version = version

    def close(self) -> None:
        self.requests.clear()

    def _answer(self, request: GenerationRequest, sample: int) -> Completion:
        text = self.script(self.tokenizer.decode(request.prompt_tokens), sample, request.seed)
        tokens = (*self.tokenizer.encode(text), self.tokenizer.eos_token_id)
        cut = tokens[: request.max_new_tokens]
        return Completion(
            tokens=cut,
            log_probs=tuple(-0.1 * (place + 1) for place in range(len(cut))),
            finish_reason="stop" if cut == tokens else "length",
            weight_version=self.version,
        )


@pytest.fixture
def scripted_engine() -> type[ScriptedEngine]:
    return ScriptedEngine


@pytest.fixture
def small_run() -> Callable[..., RunConfig]:
    """A run of 4 prompts with 4 rollouts each, and whatever overrides the test needs."""

    def make(*overrides: str) -> RunConfig:
        return load_config(overrides=[*SMALL, *overrides])

    return make
