"""The probe asks every engine, anew after each sync, and its answers are of the newest weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from vime_train.cluster import EnginePool
from vime_train.config import RunConfig
from vime_train.data.arithmetic import ArithmeticSums
from vime_train.phases import probe
from vime_train.rollout import Sample

SOURCE = ArithmeticSums()


def ask(engine: Any, config: RunConfig, version: int) -> list[Sample]:
    engine.version = version
    return probe(cast(EnginePool, engine), SOURCE, config, version=version)


@pytest.mark.parametrize("engines", [1, 3])
def test_every_engine_is_asked(scripted_engine: Any, small_run: Callable[..., RunConfig], engines: int) -> None:
    """The pool deals requests over the engines in turn."""
    engine = scripted_engine(lambda prompt, sample, seed: "1" * 40)
    samples = ask(engine, small_run(f"engine.engines={engines}"), 4)
    assert len(engine.requests) == len(samples) == 8 * engines
    for request, sample in zip(engine.requests, samples, strict=True):
        assert sample.tokens[: len(request.prompt_tokens)] == request.prompt_tokens
        assert sample.response_length == request.max_new_tokens == 32
        assert sample.token_versions == (4,) * 32
        assert sample.rollout_log_probs == tuple(-0.1 * (place + 1) for place in range(32))


def test_each_sync_is_probed_with_other_noise(scripted_engine: Any, small_run: Callable[..., RunConfig]) -> None:
    engine = scripted_engine(lambda prompt, sample, seed: "1")
    for version in range(4):
        ask(engine, small_run(), version)
    seeds = [request.seed for request in engine.requests]
    assert len(set(seeds)) == len(seeds)
    assert {request.temperature for request in engine.requests} == {1.0}
