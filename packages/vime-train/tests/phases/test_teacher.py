"""The teacher's log-probs stay with their tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from vime_train.cluster import TeacherPool
from vime_train.config import RunConfig
from vime_train.data.arithmetic import ArithmeticSums
from vime_train.engine import ScoredSequence
from vime_train.phases import scored_by_teacher
from vime_train.rollout import Collector, assemble


class Teacher:
    """Its log-prob of a token is the token's id times its place in the response, below 0."""

    def log_probs(self, sequences: Sequence[ScoredSequence]) -> list[tuple[float, ...]]:
        return [expected(one.tokens, one.response_length) for one in sequences]


def expected(tokens: Sequence[int], response_length: int) -> tuple[float, ...]:
    return tuple(-float(token * place) for place, token in enumerate(tokens[len(tokens) - response_length :], start=1))


def test_every_rank_finds_the_numbers_of_its_own_tokens(
    scripted_engine: Any, small_run: Callable[..., RunConfig]
) -> None:
    engine = scripted_engine(lambda prompt, sample, seed: f"#{seed % 20}")
    config = small_run("rollout.drop_zero_variance=false")
    rollouts = Collector(config, ArithmeticSums()).collect(engine).rollouts
    assert any(len(rollout.samples) > 1 for rollout in rollouts)
    scored = scored_by_teacher(rollouts, cast(TeacherPool, Teacher()))
    assert [rollout.rollout_id for rollout in scored] == [rollout.rollout_id for rollout in rollouts]
    batches = assemble(scored, config, iteration=1).rank_batches
    assert sum(len(batch.tokens) for batch in batches) == sum(len(rollout.samples) for rollout in rollouts)
    for batch in batches:
        columns = zip(batch.tokens, batch.response_lengths, batch.columns["teacher_log_probs"], strict=True)
        for tokens, length, found in columns:
            assert tuple(found.tolist()) == expected(tokens.tolist(), length)
