"""An engine in two processes, each with half of every layer: what it answers, and what a death in it is."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from vime_train.cluster import Cluster, EnginePool
from vime_train.config import RunConfig
from vime_train.engine import Completion, GenerationRequest

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
    for seed in range(96)
]


@pytest.fixture(scope="module")
def halves(models: list[str], logs: Path) -> Iterator[EnginePool]:
    """One engine of two processes, whose health is asked for often."""
    engine = {"engines": 1, "tensor_parallel_size": 2, "health_interval_seconds": 0.5}
    with Cluster(RunConfig.model_validate({"layout": {"dp": 1}, "engine": engine}), root=logs, logs=logs) as cluster:
        pool = cluster.begin_engines(models[0], max_model_len=96)
        pool.ready()
        yield pool


def workers(engine: int) -> list[int]:
    """vLLM's own processes below an engine's."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name, _, rest = (entry / "stat").read_text().rpartition(")")
                threads = (entry / "cmdline").read_text()
            except OSError:
                continue
            if int(rest.split()[1]) == engine and ("VLLM" in name or "multiprocessing.spawn" in threads):
                found.append(int(entry.name))
    return found


def largest_difference(engine: EnginePool, path: str) -> float:
    """Of log-probs from those of transformers, on a few of the answers."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    differences = []
    for request, answers in zip(REQUESTS[:4], engine.generate(REQUESTS[:4]), strict=True):
        for answer in answers:
            tokens = torch.tensor([request.prompt_tokens + answer.tokens])
            with torch.no_grad():
                log_probs = model(tokens).logits[0].log_softmax(-1)[len(request.prompt_tokens) - 1 : -1]
            expected = log_probs.gather(1, torch.tensor(answer.tokens).unsqueeze(1)).squeeze(1)
            differences.append((torch.tensor(answer.log_probs) - expected).abs().max().item())
    return max(differences)


def assert_same(found: list[list[Completion]], expected: list[list[Completion]]) -> None:
    for ours, theirs in zip(chain(*found), chain(*expected), strict=True):
        assert replace(ours, log_probs=()) == replace(theirs, log_probs=())
        assert ours.log_probs == pytest.approx(theirs.log_probs, abs=1e-5)


def test_log_probs_are_those_of_transformers_before_and_after_a_reload(halves: EnginePool, models: list[str]) -> None:
    halves.load_weights(models[0], version=0)
    assert largest_difference(halves, models[0]) < 1e-4
    halves.load_weights(models[1], version=1)
    assert largest_difference(halves, models[1]) < 1e-4
    assert largest_difference(halves, models[0]) > 0.1  # both halves are new


def test_its_shared_memory_has_no_names_that_could_stay(halves: EnginePool) -> None:
    (engine,) = halves.process_ids()
    for process in (engine, *workers(engine)):
        mapped = [line for line in Path(f"/proc/{process}/maps").read_text().splitlines() if "/dev/shm/psm_" in line]
        assert mapped
        assert all(line.endswith(" (deleted)") for line in mapped)


def test_a_part_that_dies_is_a_death_of_the_engine(halves: EnginePool, models: list[str]) -> None:
    halves.load_weights(models[1], version=5)
    expected = halves.generate(REQUESTS)
    (before,) = halves.process_ids()
    below, restarts = workers(before), halves.restarts
    assert len(below) >= 2
    timer = threading.Timer(0.3, os.kill, (below[-1], signal.SIGKILL))
    timer.start()
    assert_same(halves.generate(REQUESTS), expected)
    timer.join()
    assert halves.restarts == restarts + 1
    assert halves.process_ids() != [before]
    assert not [process for process in below if Path(f"/proc/{process}").exists()]
