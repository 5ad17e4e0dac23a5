"""What goes wrong between ranks ends in an error on every rank, with the rank and the key, within the timeout."""

from __future__ import annotations

import pytest

from vime_metrics.torch._roll_call import GRACE_SECONDS


def on_every_rank(answers, name, text):
    for answer in answers:
        assert answer[0] == name
        assert text in answer[1]


def test_a_type_clash(run_world):
    text = "metric 'loss' is Mean on rank 0 but Max on rank 3: log it the same way on every rank."
    on_every_rank(run_world("clash", 4), "SchemaError", text)


def test_a_missing_key_in_strict_mode(run_world):
    text = "metric 'loss' is missing on rank 1 while rank 0, 2 has it"
    on_every_rank(run_world("strict", 3), "SchemaError", text)


def test_a_fatal_nan(run_world):
    on_every_rank(run_world("fatal_nan", 2), "SchemaError", "rank 1: NaN or infinite values in 'loss' (1)")


def test_different_calls(run_world):
    on_every_rank(run_world("different_calls", 2), "SchemaError", "rank 1 called reduce(group_dst=0)")


def test_the_group_survives_a_schema_error(run_world):
    assert run_world("recovers", 2) == [{"a": 2.0}] * 2


@pytest.mark.parametrize(("size", "dead", "steps_before"), [(2, 1, 0), (4, 2, 3), (4, 0, 1)])
def test_a_rank_that_dies_is_named_in_bounded_time(run_world, size, dead, steps_before):
    answers = run_world("dies", size, dead, steps_before)
    assert answers.pop(dead) is None
    for name, text, seconds in answers:
        assert name == "ReductionError"
        assert "the reduction of metric 'train/kl' and 1 more did not finish" in text
        assert f"rank {dead} (global rank {dead}) of the group died or never came" in text
        assert seconds < 3 + GRACE_SECONDS + 5


def test_a_rank_that_never_comes_is_named_in_bounded_time(run_world):
    answers = run_world("never_comes", 3, 1)
    assert answers.pop(1) == "did something else"
    for name, text, seconds, repeated in answers:
        assert name == "ReductionError"
        assert "the reduction of metric 'train/loss' did not finish" in text
        assert "rank 1 (global rank 1) of the group died or never came within 1 s" in text
        assert seconds < 1 + GRACE_SECONDS + 5
        assert repeated
