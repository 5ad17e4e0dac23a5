"""The engine against transformers, and what its seeds and its errors promise. Real vLLM, real weights."""

from __future__ import annotations

import json
import os
import signal
import threading
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from vime_train.cluster import ActorError, EnginePool
from vime_train.engine import Completion, EngineError, GenerationRequest
from vime_train.engine._vllm import refuse_tied_head


def request(prompt: tuple[int, ...], *, seed: int = 0, samples: int = 2, temperature: float = 1.0) -> GenerationRequest:
    return GenerationRequest(
        prompt_tokens=prompt,
        num_samples=samples,
        temperature=temperature,
        top_p=1.0,
        max_new_tokens=24,
        stop_token_ids=(1,),
        seed=seed,
    )


REQUESTS = [request(tuple(range(2, 3 + length)), seed=length) for length in range(7)]


@pytest.fixture(autouse=True)
def _version_0(engines: EnginePool, models: list[str]) -> None:
    engines.load_weights(models[0], version=0)


def assert_same(found: list[list[Completion]], expected: list[list[Completion]]) -> None:
    """The same tokens, and log-probs that differ by no more than the order of additions in another batch."""
    for ours, theirs in zip(chain(*found), chain(*expected), strict=True):
        assert replace(ours, log_probs=()) == replace(theirs, log_probs=())
        assert ours.log_probs == pytest.approx(theirs.log_probs, abs=1e-5)


def oracle(path: str, prompt: tuple[int, ...], completion: Completion) -> list[float]:
    """Log-probs of the completion's tokens by transformers."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    tokens = torch.tensor([prompt + completion.tokens])
    with torch.no_grad():
        log_probs = model(tokens).logits[0].log_softmax(-1)
    return [log_probs[len(prompt) - 1 + place, token].item() for place, token in enumerate(completion.tokens)]


def largest_difference(engines: EnginePool, path: str) -> float:
    return max(
        abs(ours - theirs)
        for asked, completions in zip(REQUESTS, engines.generate(REQUESTS), strict=True)
        for completion in completions
        for ours, theirs in zip(completion.log_probs, oracle(path, asked.prompt_tokens, completion), strict=True)
    )


def test_log_probs_are_those_of_transformers_before_and_after_a_reload(engines: EnginePool, models: list[str]) -> None:
    assert largest_difference(engines, models[0]) < 1e-4
    engines.load_weights(models[1], version=1)
    assert largest_difference(engines, models[1]) < 1e-4
    engines.load_weights(models[2], version=2)
    assert largest_difference(engines, models[2]) < 1e-4
    assert largest_difference(engines, models[1]) > 0.1  # stale weights are seen


def test_completions_carry_the_version_of_their_weights(engines: EnginePool, models: list[str]) -> None:
    engines.load_weights(models[1], version=41)
    assert {answer.weight_version for answers in engines.generate(REQUESTS) for answer in answers} == {41}


def test_answers_come_in_the_order_of_the_requests(engines: EnginePool) -> None:
    answers = engines.generate(REQUESTS)
    assert_same(answers, [engines.generate([asked])[0] for asked in REQUESTS])
    assert [len(completions) for completions in answers] == [2] * len(REQUESTS)


def test_the_answer_depends_on_the_request_alone(engines: EnginePool, models: list[str]) -> None:
    """Not on its neighbours, not on which engine serves it, not on what was asked before."""
    first = engines.generate(REQUESTS)
    engines.load_weights(models[1], version=1)
    engines.generate(REQUESTS)
    engines.load_weights(models[0], version=0)
    assert_same(engines.generate(REQUESTS[::-1])[::-1], first)
    assert_same(engines.generate(REQUESTS[:3]), first[:3])


def test_neighbouring_seeds_do_not_share_noise(engines: EnginePool) -> None:
    """vLLM seeds sample i with seed + i: sample 1 of seed 7 must not be sample 0 of seed 8."""
    seven, eight = engines.generate([request((2, 3), seed=7), request((2, 3), seed=8)])
    tokens = [completion.tokens for completion in (*seven, *eight)]
    assert len(set(tokens)) == 4


def test_another_seed_gives_another_answer_and_greedy_ignores_it(engines: EnginePool) -> None:
    sampled = engines.generate([request((2, 3), seed=seed, samples=1) for seed in range(4)])
    assert len({answers[0].tokens for answers in sampled}) == 4
    greedy = engines.generate([request((2, 3), seed=seed, samples=1, temperature=0.0) for seed in range(4)])
    assert len({answers[0].tokens for answers in greedy}) == 1


def test_a_finished_answer_holds_its_stop_token(engines: EnginePool) -> None:
    answers = [answer for answers in engines.generate([request((2, 3), samples=64)]) for answer in answers]
    assert {answer.finish_reason for answer in answers} == {"stop", "length"}
    for answer in answers:
        assert (answer.tokens[-1] == 1) == (answer.finish_reason == "stop")
        assert 1 not in answer.tokens[:-1]
        assert len(answer.tokens) == len(answer.log_probs) <= 24


def test_no_requests_no_answers(engines: EnginePool) -> None:
    assert engines.generate([]) == []


def test_a_request_that_does_not_fit_is_named(engines: EnginePool) -> None:
    with pytest.raises(ActorError, match=r"EngineError: request 0 needs 97 tokens \(73 of prompt, 24 new\).*for 96"):
        engines.generate([request((2,) * 73)])
    with pytest.raises(ActorError, match="has an empty prompt"):
        engines.generate([request(())])
    assert engines.restarts == 0  # the same work would raise again
    assert len(engines.generate([request((2,) * 72)])) == 1


def test_an_engine_that_is_killed_while_it_answers_is_restarted_and_its_work_redone(
    engines: EnginePool, models: list[str]
) -> None:
    engines.load_weights(models[1], version=5)
    many = [request((2, 3, 4), seed=seed, samples=16) for seed in range(128)]
    expected = engines.generate(many)
    before = engines.process_ids()
    timer = threading.Timer(0.3, os.kill, (before[0], signal.SIGKILL))
    timer.start()
    assert_same(engines.generate(many), expected)  # under the newest weights, and with their version
    timer.join()
    assert engines.restarts == 1
    assert engines.process_ids()[0] != before[0]
    assert engines.process_ids()[1] == before[1]


@pytest.mark.parametrize("text", [{"tie_word_embeddings": True}, {}])
def test_a_tied_head_is_refused(tmp_path: Path, text: dict[str, bool]) -> None:
    """vLLM's reload leaves a stale LM head when it is tied, and says nothing."""
    (tmp_path / "config.json").write_text(json.dumps(text))
    with pytest.raises(EngineError, match=r"ties the LM head to the embedding.*tie_word_embeddings=false"):
        refuse_tied_head(str(tmp_path))


def test_an_untied_head_is_not_refused(models: list[str]) -> None:
    refuse_tied_head(models[0])
