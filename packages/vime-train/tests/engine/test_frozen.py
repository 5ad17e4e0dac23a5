"""vLLM that freezes while it answers: noticed by its health, replaced, and its answers are the same."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from vime_train.cluster import Cluster, EnginePool
from vime_train.config import RunConfig
from vime_train.engine import GenerationRequest

REQUESTS = [
    GenerationRequest(
        prompt_tokens=(2, 3, 4),
        num_samples=16,
        temperature=1.0,
        top_p=1.0,
        max_new_tokens=24,
        stop_token_ids=(1,),
        seed=seed,
    )
    for seed in range(128)
]


@pytest.fixture
def watched(models: list[str], logs: Path) -> Iterator[EnginePool]:
    """One engine, whose health is asked for often."""
    engine = {"engines": 1, "health_interval_seconds": 0.5, "health_timeout_seconds": 5.0}
    with Cluster(RunConfig.model_validate({"layout": {"dp": 1}, "engine": engine}), root=logs, logs=logs) as cluster:
        pool = cluster.begin_engines(models[0], max_model_len=96)
        pool.ready()
        yield pool


def test_an_engine_that_is_stopped_while_it_answers_is_replaced_and_its_work_redone(
    watched: EnginePool, models: list[str]
) -> None:
    watched.load_weights(models[1], version=5)
    expected = watched.generate(REQUESTS)
    (before,) = watched.process_ids()
    timer = threading.Timer(0.3, os.kill, (before, signal.SIGSTOP))
    timer.start()
    found = watched.generate(REQUESTS)
    timer.join()
    assert watched.restarts == 1
    assert watched.process_ids() != [before]
    for ours, theirs in zip(chain(*found), chain(*expected), strict=True):
        assert replace(ours, log_probs=()) == replace(theirs, log_probs=())
        assert ours.log_probs == pytest.approx(theirs.log_probs, abs=1e-5)
