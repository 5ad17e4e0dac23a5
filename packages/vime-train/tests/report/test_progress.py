"""What a run says while it runs, and the file and sinks that its figures go to."""

from __future__ import annotations

import io
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vime_metrics import Mean, Quantiles
from vime_train._errors import RunError
from vime_train.config import TrackingSection
from vime_train.plugins import PluginCallError, PluginError
from vime_train.report import MetricsLog, PlainProgress, describe, open_sinks, read_records
from vime_train.report._live import wrapped


def test_a_log_holds_every_figure_of_every_metric(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    values = log.write(1, {"b": 2.0, "a": Mean(3, 4), "empty": Mean(), "length": Quantiles.of([1, 2, 3])})
    log.close()
    line = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert line["step"] == 1
    assert (line["a"], line["b"], line["empty"]) == (0.75, 2.0, None)
    assert line["length/p50"] == pytest.approx(2.0, rel=0.02)
    assert list(values) == sorted(values)
    found = read_records(tmp_path / "metrics.jsonl")[0]
    assert found.iteration == 1
    assert math.isnan(found.values["empty"])


def test_other_sinks_get_the_same_numbers(tmp_path: Path) -> None:
    seen: list[tuple[int, dict[str, float]]] = []

    class Sink:
        def write(self, step: int, values: Any) -> None:
            seen.append((step, dict(values)))

        def close(self) -> None:
            seen.append((-1, {}))

    log = MetricsLog(tmp_path / "metrics.jsonl", [Sink()])
    log.write(3, {"a": 1.0})
    log.close()
    assert seen == [(3, {"a": 1.0}), (-1, {})]


def test_sinks_are_made_from_import_paths(tmp_path: Path) -> None:
    path = "vime_metrics.sinks:JsonlSink"
    sink = open_sinks(TrackingSection(sinks=(path,)), tmp_path / "other.jsonl")[0]
    sink.write(1, {"a": 1.0})
    sink.close()
    assert json.loads((tmp_path / "other.jsonl").read_text()) == {"step": 1, "a": 1.0}
    with pytest.raises(PluginError, match=r"'builtins:list' made a list without write and close"):
        open_sinks(TrackingSection(sinks=("builtins:list",)), tmp_path)


def test_a_sink_that_raises_is_named(tmp_path: Path) -> None:
    class Broken:
        def write(self, step: int, values: Any) -> None:
            raise ConnectionError("the tracking server is gone")

        def close(self) -> None:
            """Nothing is held."""

    log = MetricsLog(tmp_path / "metrics.jsonl", [Broken()])
    with pytest.raises(PluginCallError, match=r"Broken of tracking\.sinks raised ConnectionError: .*iteration 3"):
        log.write(3, {"a": 1.0})
    log.close()
    assert read_records(tmp_path / "metrics.jsonl")[0].iteration == 3


def test_metrics_that_the_disk_has_no_room_for_are_told_with_their_file() -> None:
    log = MetricsLog("/dev/full")
    with pytest.raises(RunError, match=r"cannot write step 1 to /dev/full: \[Errno 28\] No space left on device"):
        log.write(1, {"a": 1.0})
    with pytest.raises(OSError, match="No space left"):
        log.close()


def test_plain_progress_says_a_tenth_at_a_time() -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream)
    progress.say("starting Ray")
    for done in range(1, 101):
        progress.advance("supervised", done, 100, {"train/loss": 0.5})
    progress.close()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 11
    assert re.fullmatch(r"\[ *\d+\.\d s\] starting Ray", lines[0])
    assert lines[-1].endswith("supervised 100/100  loss 0.500")


@pytest.mark.parametrize("total", [1, 2, 3, 7])
def test_plain_progress_of_a_short_phase_says_every_step(total: int) -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream)
    for done in range(1, total + 1):
        progress.advance("iteration", done, total, {})
    assert len(stream.getvalue().splitlines()) == total


FIGURES = {
    "train/loss": -2.2e-4,
    "rollout/reward": 0.289,
    "eval/accuracy": 0.15,
    "response/mean_length": 1234.5,
    "check/max_log_prob_difference": 7.1e-6,
    "time/step": 3.5,
}


@pytest.mark.parametrize("width", [120, 80, 50, 40])
def test_live_progress_shows_bars_and_whole_figures_at_any_width(width: int) -> None:
    """Figures used to push the bar and its counts off a terminal of 80 columns."""
    from rich.console import Console

    from vime_train.report import LiveProgress

    stream = io.StringIO()
    progress = LiveProgress(Console(file=stream, force_terminal=True, width=width))
    progress.say("starting [Ray]")
    progress.advance("supervised", 1200, 1200, {"supervised/loss": 0.5})
    progress.advance("iteration", 3, 4, FIGURES)
    progress.close()
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
    assert "starting [Ray]" in text
    assert re.search(r"supervised \S+ 1200/1200 \d:\d\d:\d\d", text)
    assert re.search(r"iteration  \S+ 3/4 +\d:\d\d:\d\d", text)
    for figure in describe(FIGURES).split("  "):
        assert figure in text
    assert max(map(len, re.split(r"[\r\n]+", text))) <= width


@given(st.lists(st.text("abc123", min_size=1, max_size=12)), st.integers(14, 60))
def test_figures_are_wrapped_whole(parts: list[str], width: int) -> None:
    lines = wrapped(parts, width=width)
    assert all(len(line) <= width for line in lines)
    assert [part for line in lines for part in line[2:].split("  ")] == parts


def test_small_figures_are_told_with_their_exponent() -> None:
    assert describe({"check/max_log_prob_difference": 2.9e-5}) == "log-prob diff 2.9e-05"
    assert describe({"rollout/reward": 0.0}) == "reward 0.000"
