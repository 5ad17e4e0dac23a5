"""`vime-train check-plugin`: extensions that fit, and every way in which one does not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from vime_train.cli import main


@pytest.mark.parametrize(
    ("path", "key", "line"),
    [
        ("vime_train.rollout.attempts:generate_rollouts", "rollout.function", "16 rollouts with"),
        ("vime_train.rollout.filters:reward_varies", "rollout.group_filter", "of 4 groups"),
        ("vime_train.data.arithmetic:ArithmeticSums", "data.source", "a retry adds 1 tokens"),
        ("own:length", "rollout.reward", "5 answers scored 0, 3, 3, 600, 5"),
        ("own:ranks", "rollout.group_reward", "a group of one scored 0"),
        ("own:length", "rollout.rewards.code", "5 answers scored 0, 3, 3, 600, 5"),
        ("vime_train.rollout.attempts:generate_rollouts", "rollout.functions.tool", "16 rollouts with"),
        ("own:shorter", "rollout.sample_filter", "8 rollouts with"),
        ("own:newest_first", "rollout.buffer_order", "4 iterations took 16 of the groups that waited"),
        ("own:ones", "algorithm.advantage_function", "one finite number per response token"),
        ("own:Keep", "tracking.sinks", "took two steps"),
        ("own:begin", "hooks.before_model", "was called for 2 ranks"),
        ("own:halve", "hooks.before_log_probs", "the batches of 2 ranks, 2 of them got other columns"),
        ("own:look", "hooks.before_train_step", "the batches of 2 ranks, 0 of them got other columns"),
        ("own:clipped", "algorithm.loss_function", "the same for every split over micro-batches, DP and CP"),
    ],
)
def test_an_extension_that_fits_passes(
    capsys: pytest.CaptureFixture[str], elsewhere: Path, path: str, key: str, line: str
) -> None:
    (elsewhere / "own.py").write_text(OWN)
    sys.modules.pop("own", None)
    assert main(["check-plugin", path, "--for", key]) == 0
    out = capsys.readouterr().out
    assert all(text.startswith(f"ok  {key}: ") for text in out.splitlines())
    assert line in out


@pytest.mark.parametrize(
    ("name", "key", "message", "code"),
    [
        ("length", "rollout.group_reward", "takes (problem, answer, *, finished); it is called as", 2),
        ("constant", "rollout.reward", "own:constant' is a int; a callable", 2),
        ("broken", "rollout.reward", "raised ZeroDivisionError", 1),
        ("words", "rollout.reward", "returned 'good'", 1),
        ("nothing", "rollout.function", "returned None: a list of vime_train.rollout.Rollout is needed", 1),
        ("nothing", "rollout.group_filter", "it is called as (group) -> bool", 2),
        ("no_sink", "tracking.sinks", "made a dict without write and close", 2),
        ("Leaky", "data.source", "is drawn for training and is in another split too", 2),
        ("Moody", "data.source", "differs from its two halves", 2),
        ("Vague", "data.source", "num_problems is 'many': the training problems of an epoch are needed, or None", 2),
        ("unplan", "hooks.before_log_probs", "changed the plan: a hook may change columns", 1),
        ("nothing", "hooks.before_model", "it is called as (config, rank)", 2),
        ("nothing", "hooks.before_train_step", "it is called as (batch, step)", 2),
        ("centred", "algorithm.loss_function", "breaks a law of losses", 2),
        ("scalar", "algorithm.loss_function", "breaks a law of losses", 2),
    ],
)
def test_an_extension_that_does_not_fit_is_told(
    refuse: Callable[..., str], elsewhere: Path, name: str, key: str, message: str, code: int
) -> None:
    (elsewhere / "own.py").write_text(OWN)
    sys.modules.pop("own", None)
    assert message in refuse("check-plugin", f"own:{name}", "--for", key, code=code)


OWN = """
import itertools
from dataclasses import replace
from vime_train.data.arithmetic import ArithmeticSums

constant = 3
count = itertools.count()

def length(problem, answer, *, finished):
    return len(answer)

def ranks(problem, answers):
    return list(range(len(answers)))

def broken(problem, answer, *, finished):
    return 1 / len(answer)

def words(problem, answer, *, finished):
    return "good"

def shorter(rollouts):
    return rollouts[::2]

def newest_first(groups):
    return [group[0].group_id for group in reversed(groups)]

def ones(rollouts, section):
    return [[1.0] * sample.response_length for rollout in rollouts for sample in rollout.samples]

def nothing(engine, problems, context):
    return None

def no_sink(run_dir):
    return {}

def clipped(log_probs, old_log_probs, advantages, packed, section):
    ratio = (log_probs - old_log_probs).exp()
    return -(ratio.clamp(max=1.28) * advantages)

def centred(log_probs, old_log_probs, advantages, packed, section):
    return -log_probs * (advantages - advantages.mean())

def scalar(log_probs, old_log_probs, advantages, packed, section):
    return -(log_probs * advantages).sum()

def begin(config, rank):
    assert config.layout.world_size > rank

def halve(batch):
    return replace(batch, advantages=tuple(0.5 * one for one in batch.advantages))

def look(batch, step):
    assert step == 0

def unplan(batch):
    return replace(batch, fingerprint="mine")

class Keep:
    def __init__(self, run_dir):
        self.steps = []
    def write(self, step, values):
        self.steps.append(step)
    def close(self):
        pass

class Leaky(ArithmeticSums):
    def held_out(self, count):
        return self.problems(count, seed=0, start=0)

class Vague(ArithmeticSums):
    num_problems = "many"

class Moody(ArithmeticSums):
    def problems(self, count, *, seed, start):
        return super().problems(count, seed=next(count_of_calls), start=start)

count_of_calls = itertools.count()
"""
