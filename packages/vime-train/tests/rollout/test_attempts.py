"""The default rollout function: attempts, shared rewards, seeds."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vime_train.config import RunConfig
from vime_train.data.arithmetic import ArithmeticSums
from vime_train.rollout import Rollout, RolloutContext, generate_rollouts, load_reward

SOURCE = ArithmeticSums()


def total(prompt: str) -> int:
    return sum(int(digit) for digit in re.findall(r"[a-j](\d)", prompt.split("=")[0]))


def run(engine: Any, config: RunConfig, *, first_group_id: int = 0) -> list[Rollout]:
    problems = SOURCE.problems(4, seed=0, start=first_group_id)
    context = RolloutContext(
        config=config,
        source=SOURCE,
        reward=load_reward(config.rollout, SOURCE),
        group_ids=tuple(range(first_group_id, first_group_id + 4)),
    )
    return generate_rollouts(engine, problems, context)


def right(prompt: str, sample: int, seed: int) -> str:
    return f"#{total(prompt)}"


def wrong(prompt: str, sample: int, seed: int) -> str:
    return "#0"


def right_at_second(prompt: str, sample: int, seed: int) -> str:
    return right(prompt, sample, seed) if "?" in prompt else "#0"


def test_a_right_answer_is_one_sample(scripted_engine: Any, small_run: Callable[..., RunConfig]) -> None:
    rollouts = run(scripted_engine(right), small_run())
    assert [rollout.reward for rollout in rollouts] == [1.0] * 16
    assert all(len(rollout.samples) == 1 for rollout in rollouts)


def test_a_wrong_first_answer_is_tried_again(scripted_engine: Any, small_run: Callable[..., RunConfig]) -> None:
    """Two samples with one rollout id and one reward; the second prompt shows the first answer and the marker."""
    rollouts = run(scripted_engine(right_at_second), small_run())
    for rollout in rollouts:
        first, second = rollout.samples
        assert first.rollout_id == second.rollout_id == rollout.rollout_id
        assert first.reward == second.reward == rollout.reward == 0.5
        assert second.tokens[: len(first.tokens)] == first.tokens
        between = second.tokens[len(first.tokens) : -second.response_length]
        assert SOURCE.tokenizer.decode(between) == "?"


def test_attempts_end_at_the_limit(scripted_engine: Any, small_run: Callable[..., RunConfig]) -> None:
    for attempts in (1, 2, 3):
        config = small_run(f"rollout.max_attempts={attempts}")
        rollouts = run(scripted_engine(wrong), config)
        assert [len(rollout.samples) for rollout in rollouts] == [attempts] * 16
        assert [rollout.reward for rollout in rollouts] == [0.0] * 16


def test_a_later_attempt_counts_less(scripted_engine: Any, small_run: Callable[..., RunConfig]) -> None:
    def right_at_third(prompt: str, sample: int, seed: int) -> str:
        return right(prompt, sample, seed) if prompt.count("?") == 2 else "#0"

    config = small_run("rollout.max_attempts=3", "rollout.retry_reward=0.5")
    assert {rollout.reward for rollout in run(scripted_engine(right_at_third), config)} == {0.25}


def test_ids_count_on_from_the_first_group(scripted_engine: Any, small_run: Callable[..., RunConfig]) -> None:
    rollouts = run(scripted_engine(wrong), small_run(), first_group_id=100)
    assert [rollout.rollout_id for rollout in rollouts] == list(range(400, 416))
    assert [rollout.group_id for rollout in rollouts] == [100 + copy // 4 for copy in range(16)]
    assert [rollout.problem for rollout in rollouts[::4]] == SOURCE.problems(4, seed=0, start=100)


def test_every_sample_obeys_its_record(scripted_engine: Any, small_run: Callable[..., RunConfig]) -> None:
    engine = scripted_engine(lambda prompt, sample, seed: "a1,2" * (seed % 5) + f"#{seed % 30}", version=7)
    for rollout in run(engine, small_run()):
        for sample in rollout.samples:
            assert len(sample.loss_mask) == len(sample.rollout_log_probs) == sample.response_length
            assert set(sample.loss_mask) == {1}
            assert sample.weight_version == 7
            assert sample.tokens[: len(rollout.problem.prompt_tokens)] == rollout.problem.prompt_tokens


def test_an_answer_cut_at_the_limit_is_truncated(scripted_engine: Any, small_run: Callable[..., RunConfig]) -> None:
    rollouts = run(scripted_engine(lambda *_: "1" * 100), small_run("rollout.max_attempts=1"))
    assert {sample.status for rollout in rollouts for sample in rollout.samples} == {"truncated"}
    assert {rollout.reward for rollout in rollouts} == {0.0}


def test_first_attempts_share_a_request(scripted_engine: Any, small_run: Callable[..., RunConfig]) -> None:
    engine = scripted_engine(wrong)
    run(engine, small_run())
    assert [request.num_samples for request in engine.requests] == [4] * 4 + [1] * 16


def test_no_two_requests_share_a_seed(scripted_engine: Any, small_run: Callable[..., RunConfig]) -> None:
    engine = scripted_engine(wrong)
    run(engine, small_run())
    run(engine, small_run(), first_group_id=4)
    seeds = [request.seed for request in engine.requests]
    assert len(set(seeds)) == len(seeds) == 40


@given(seed=st.integers(0, 10**9), rollout_id=st.integers(0, 10**9), attempt=st.integers(0, 5))
def test_seeds_are_a_pure_function_and_fit_31_bits(seed: int, rollout_id: int, attempt: int) -> None:
    def context(seed: int) -> RolloutContext:
        config = RunConfig(seed=seed)
        return RolloutContext(config=config, source=SOURCE, reward=lambda *_: [], group_ids=())

    value = context(seed).seed_of(rollout_id, attempt)
    assert 0 <= value < 2**31
    assert value == context(seed).seed_of(rollout_id, attempt)


def test_the_same_run_again_is_the_same(scripted_engine: Any, small_run: Callable[..., RunConfig]) -> None:
    def script(prompt: str, sample: int, seed: int) -> str:
        return f"#{(seed + sample) % 40}"

    assert run(scripted_engine(script), small_run()) == run(scripted_engine(script), small_run())


@pytest.mark.parametrize("room", [1, 64])
def test_an_attempt_without_room_is_not_made(
    scripted_engine: Any, small_run: Callable[..., RunConfig], room: int
) -> None:
    """A first answer so long that a second one could pass the longest sample: the rollout ends with what it has."""
    config = small_run("data.max_prompt_tokens=17", "rollout.max_retry_tokens=0", f"rollout.max_new_tokens={room}")
    for rollout in run(scripted_engine(lambda *_: "1" * 200), config):
        assert all(len(sample.tokens) <= config.max_sample_tokens for sample in rollout.samples)
