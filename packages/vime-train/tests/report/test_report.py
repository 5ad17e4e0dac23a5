"""What a run leaves for its reader: table, picture, plan page, report page."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vime_train.config import RunConfig
from vime_train.data.arithmetic import ArithmeticSums
from vime_train.report import (
    MetricsLog,
    Record,
    print_table,
    read_records,
    series,
    summarise,
    table_rows,
    write_last_iteration,
    write_report,
)
from vime_train.report._curves import _times
from vime_train.report._page import histogram
from vime_train.rollout import Collector, assemble

PNG = b"\x89PNG\r\n\x1a\n"


def record(iteration: int, **values: float) -> Record:
    return Record(iteration=iteration, values={name.replace("__", "/"): value for name, value in values.items()})


def run_records(iterations: int = 3) -> list[Record]:
    first = record(0, eval__accuracy=0.25, time__step=9.0)
    return [first, *(record(number, **step(number)) for number in range(1, iterations + 1))]


def step(number: int) -> dict[str, float]:
    return {
        "rollout__reward": number / 10,
        "response__mean_length": 10.0 + number,
        "response__shortest": 2.0,
        "response__longest": 40.0,
        "check__max_log_prob_difference": 1e-5 * number,
        "check__mean_log_prob_difference": 1e-6,
        "plan__imbalance": 1.0 + number / 100,
        "plan__lockstep": 1.0 + number / 50,
        "plan__padding": 0.01,
        "time__generate": 2.0,
        "time__plan": 0.1,
        "time__train": 1.0,
        "time__sync": 0.2,
        "time__check": 0.3,
        "time__step": 4.0,
        **({"eval__accuracy": 0.9} if number == 3 else {}),
    }


def test_records_of_a_resumed_run_are_the_last_ones(tmp_path: Path) -> None:
    lines = [{"step": 1, "a": 1}, {"step": 2, "a": 2}, {"step": 2, "a": 3}]
    (tmp_path / "m.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"step": 3, "a')
    assert [(one.iteration, one.values["a"]) for one in read_records(tmp_path / "m.jsonl")] == [(1, 1.0), (2, 3.0)]


def test_a_series_leaves_out_what_is_not_there() -> None:
    records = [record(0, a=1.0), record(1, b=2.0), record(2, a=math.nan), record(3, a=4.0)]
    assert series(records, "a") == ([0, 3], [1.0, 4.0])


def test_the_summary_is_of_both_ends() -> None:
    summary = summarise(run_records())
    assert (summary.iterations, summary.reward, summary.accuracy) == (3, (0.1, 0.3), (0.25, 0.9))
    assert summary.length == (11.0, 13.0)
    assert summary.imbalance == pytest.approx(1.02)
    assert summary.max_log_prob_difference == pytest.approx(3e-5)


@given(
    st.lists(
        st.fixed_dictionaries({name: st.floats(0, 10) for name in ("generate", "plan", "train", "sync", "check")}),
        min_size=1,
        max_size=5,
    ),
    st.floats(0, 5),
)
def test_the_phases_and_other_add_up_to_the_step(steps: list[dict[str, float]], other: float) -> None:
    records = [
        Record(
            iteration=number,
            values={f"time/{name}": value for name, value in phases.items()}
            | {"time/step": sum(phases.values()) + other},
        )
        for number, phases in enumerate(steps, start=1)
    ]
    seconds = dict(summarise(records).seconds)
    whole = seconds.pop("step")
    assert sum(seconds.values()) == pytest.approx(whole, abs=1e-9)
    assert seconds["other"] == pytest.approx(other, abs=1e-9)


def test_generation_beside_other_phases_is_told_and_is_in_none_of_them() -> None:
    step = {"time__step": 4.0, "time__generate": 1.0, "time__train": 3.0}
    summary = summarise([record(1, **step, time__generate_hidden=1.5), record(2, **step)])
    assert summary.seconds == {"generate": 1.0, "train": 3.0, "other": 0.0, "step": 4.0}
    assert ("hidden", "0.75 s of generation ran beside other phases") in table_rows(summary)
    assert "hidden" not in dict(table_rows(summarise(run_records())))


def test_time_in_which_nobody_worked_is_told_with_its_share() -> None:
    summary = summarise([record(1, time__step=4.0, time__orchestration=0.1), record(2, time__step=2.0)])
    assert ("orchestration", "0.10 s, 3.3% of the step: nobody worked") in table_rows(summary)


def test_the_table_says_what_the_run_came_to() -> None:
    stream = io.StringIO()
    print_table(summarise(run_records()), "demo", stream)
    text = stream.getvalue()
    assert "25.0% -> 90.0%" in text
    assert "0.100 -> 0.300" in text
    assert "4.00 s: generate 2.00, plan 0.10, train 1.00, sync 0.20, check 0.30, other 0.40" in text
    assert "\x1b" not in text


def test_a_run_that_did_nothing_has_a_table() -> None:
    assert table_rows(summarise([])) == [("iterations", "0")]


@pytest.fixture
def finished(tmp_path: Path, scripted_engine: Any, small_run: Callable[..., RunConfig]) -> Path:
    """A run directory with everything that a report reads."""
    config, source = small_run("name='<demo>'"), ArithmeticSums()
    (tmp_path / "config.json").write_text(config.model_dump_json())
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for one in run_records():
        log.write(one.iteration, one.values)
    log.close()
    engine = scripted_engine(lambda prompt, sample, seed: f"a1,{seed % 9}" * (sample + 1) + f"#{(seed + sample) % 30}")
    rollouts = Collector(config, source).collect(engine).rollouts
    rollouts = tuple(
        one.__class__(
            rollout_id=one.rollout_id,
            group_id=one.group_id,
            problem=one.problem,
            samples=one.samples,
            reward=float(one.rollout_id % 2),
        )
        for one in rollouts
    )
    write_last_iteration(tmp_path, 3, rollouts, assemble(rollouts, config, iteration=3), source)
    return tmp_path


def test_a_report_writes_picture_plan_and_page(finished: Path) -> None:
    report = write_report(finished)
    assert [file.name for file in report.files] == ["curves.png", "plan.html", "report.html"]
    assert (finished / "curves.png").read_bytes().startswith(PNG)
    page = (finished / "report.html").read_text()
    assert "&lt;demo&gt;" in page
    assert "<demo>" not in page
    assert "25.0% -&gt; 90.0%" in page
    assert "srcdoc=" in page


def test_the_page_loads_nothing_from_anywhere(finished: Path) -> None:
    write_report(finished)
    page = (finished / "report.html").read_text()
    targets = re.findall(r"(?:src|href)\s*=\s*[\"']([^\"']{0,40})", page)
    assert targets
    assert all(target.startswith(("data:", "#")) for target in targets)
    assert "<script src" not in page


def test_the_page_shows_rollouts_with_their_rewards(finished: Path) -> None:
    write_report(finished)
    page = (finished / "report.html").read_text()
    shown = json.loads((finished / "samples.json").read_text())
    rewards = [rollout["reward"] for rollout in shown["rollouts"]]
    assert rewards == [0.0] * 8 + [1.0] * 8
    for rollout in shown["rollouts"]:
        assert rollout["prompt"] in page
        assert len(rollout["attempts"]) == 2
    assert len(shown["response_lengths"]) == 32


def test_texts_of_the_run_are_escaped(finished: Path) -> None:
    shown = json.loads((finished / "samples.json").read_text())
    shown["rollouts"][0]["prompt"] = "<script>alert(1)</script>"
    shown["rollouts"][0]["attempts"][0]["text"] = "</td><img src=x onerror=alert(2)>"
    (finished / "samples.json").write_text(json.dumps(shown))
    write_report(finished)
    page = (finished / "report.html").read_text()
    assert "<script>alert(1)" not in page
    assert "<img src=x" not in page


def test_the_picture_follows_the_figures(finished: Path) -> None:
    write_report(finished)
    before = (finished / "curves.png").read_bytes()
    write_report(finished)
    assert (finished / "curves.png").read_bytes() == before
    with (finished / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 4, "rollout/reward": 0.9}) + "\n")
    write_report(finished)
    assert (finished / "curves.png").read_bytes() != before


def test_bars_of_time_reach_the_step_and_stand_below_the_edge() -> None:
    """An empty bar at the top, such as that of a phase which most iterations lack, took matplotlib's margin away."""
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    _times(axes, [record(1, **step(1)), record(2, **step(2) | {"time__evaluate": 0.2, "time__step": 3.8})])
    tops = [bar.get_y() + bar.get_height() for container in axes.containers for bar in container]
    assert max(tops) == pytest.approx(4.0)
    assert axes.get_ylim()[1] > max(tops)


def test_a_run_that_was_stopped_early_still_has_a_report(finished: Path) -> None:
    for name in ("plan.json", "samples.json"):
        (finished / name).unlink()
    (finished / "metrics.jsonl").write_text("")
    report = write_report(finished)
    assert [file.name for file in report.files] == ["curves.png", "report.html"]
    assert report.summary.iterations == 0


def test_a_plan_that_cannot_be_drawn_does_not_cost_the_report(finished: Path) -> None:
    (finished / "plan.json").write_text('{"format": "of long ago"}')
    report = write_report(finished)
    assert [file.name for file in report.files] == ["curves.png", "report.html"]
    assert len(report.problems) == 1
    assert "plan.html was not written: vime-schedule: error:" in report.problems[0]


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=200))
def test_a_histogram_counts_every_length_once(lengths: list[int]) -> None:
    counts = [int(count) for count in re.findall(r"tokens: (\d+)<", histogram(lengths))]
    assert sum(counts) == len(lengths)
    assert len(counts) <= 33


def test_no_response_has_a_histogram_too() -> None:
    assert histogram([]) == "<p>No response.</p>"
