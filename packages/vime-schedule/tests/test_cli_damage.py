"""Whatever a file holds, the command line answers with a result or with one line and exit code 2."""

from __future__ import annotations

import contextlib
import io
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vime_schedule import ParallelLayout, TokenBudget, build_dp_schedule
from vime_schedule._cli import main

SHARED_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
PLAN = build_dp_schedule(
    [7, 3, 8, 2, 5, 5, 9, 1, 14],
    layout=ParallelLayout(dp=2, pp=2, vpp=2),
    batching=TokenBudget(max_tokens_per_gpu=10),
    global_batch_size=6,
    remainder="drop",
).to_json()


def answer(*arguments: str) -> tuple[int, str]:
    """Run a command in this process; return exit code and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    return code, err.getvalue()


def check(code: int, err: str) -> None:
    assert code in (0, 2)
    told = [line for line in err.splitlines() if not line.startswith("wrote ")]
    assert len(told) == (1 if code == 2 else 0)


def damaged(value: Any, rng: random.Random) -> Any:
    """Return a copy of a JSON value with one place changed, removed or doubled."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(sorted(value))
        changed = dict(value)
        if rng.random() < 0.1:
            del changed[key]
        else:
            changed[key] = damaged(value[key], rng)
        return changed
    if isinstance(value, list) and value and rng.random() < 0.9:
        index = rng.randrange(len(value))
        middle = rng.choice([[], [value[index]] * 2, [damaged(value[index], rng)], [damaged(value[index], rng)]])
        return value[:index] + middle + value[index + 1 :]
    return rng.choice([None, True, -1, 0, 1, 2, 10**30, 1.5, float("inf"), "", "drop", [], [[]], {}, value])


@SHARED_FOLDER
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")))
def test_any_bytes_for_lengths(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "input").write_bytes(content)
    check(*answer("plan", str(tmp_path / "input"), "--micro-batch-size", "2"))
    check(*answer("calibrate", str(tmp_path / "input")))


WORDS = st.sampled_from(
    ['{"length": ', "}", "[", "]", "5", "-1", "1e9", "NaN", ",", "\n", '"', "length", "lengths", "null", " "]
)


@SHARED_FOLDER
@given(st.lists(WORDS, max_size=30).map("".join))
def test_nearly_right_text_for_lengths(tmp_path: Path, content: str) -> None:
    (tmp_path / "input").write_text(content)
    check(*answer("plan", str(tmp_path / "input"), "--max-tokens-per-gpu", "100"))
    check(*answer("calibrate", str(tmp_path / "input")))


@SHARED_FOLDER
@given(st.integers(0, 2**32))
def test_damaged_plans(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(damaged(json.loads(PLAN), random.Random(seed))))
    code, err = answer("report", str(path), "--html", str(tmp_path / "page.html"))
    check(code, err)
    for command in (("explain",), ("simulate",), ("report", "--json"), ("explain", "--why-not", "3")):
        again, told = answer(command[0], str(path), *command[1:])
        check(again, told)
        assert again == code
    if code == 2:
        assert str(path) in err


@pytest.mark.parametrize("cut", [0, 1, 10, 100, len(PLAN) // 2, len(PLAN) - 1])
def test_a_plan_cut_short(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "plan.json"
    path.write_text(PLAN[:cut])
    code, err = answer("report", str(path))
    assert code == 2
    assert str(path) in err
