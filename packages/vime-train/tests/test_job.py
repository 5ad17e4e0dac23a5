"""The length of a run in epochs becomes iterations before anything starts, or is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vime_train._job import Job
from vime_train.cli import main
from vime_train.config import ConfigError, ModelSection, RunConfig, load_config, with_iterations
from vime_train.data import DataError, make_model
from vime_train.data.arithmetic import ArithmeticSums
from vime_train.report import PlainProgress
from vime_train.rollout import Problem

Make = Callable[..., RunConfig]


class TenSums(ArithmeticSums):
    """Sums that have an end, as far as anybody is told."""

    @property
    def num_problems(self) -> int:  # type: ignore[override]
        return 10


def judge(problem: Problem, answer: str, *, finished: bool) -> float:
    return 0.0


class Silent(ArithmeticSums):
    """A source that does not tell whether it has an end."""

    @property
    def num_problems(self) -> None:
        raise NotImplementedError("nobody has counted them")


class BrokenSplit(TenSums):
    def held_out(self, count: int) -> list[Problem]:
        raise LookupError("the file of the split is gone")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> str:
    """This module under a name that an import path can hold."""
    monkeypatch.setitem(sys.modules, "job_sources", sys.modules[__name__])
    return "job_sources"


@given(epochs=st.integers(1, 9), problems=st.integers(1, 300), prompts=st.integers(1, 40))
def test_every_problem_is_drawn_once_an_epoch_and_no_iteration_is_for_nothing(
    epochs: int, problems: int, prompts: int
) -> None:
    config = load_config(overrides=[f"train.epochs={epochs}", f"rollout.prompts_per_iteration={prompts}"])
    resolved = with_iterations(config, problems).train
    assert resolved.epochs is None
    assert (resolved.iterations - 1) * prompts < epochs * problems <= resolved.iterations * prompts


def test_without_epochs_nothing_changes() -> None:
    config = load_config(overrides=["train.iterations=3"])
    assert with_iterations(config, 10) is config
    assert with_iterations(config, None) is config


def test_a_run_of_epochs_starts_with_its_iterations_and_goes_on_with_them(
    small_run: Make, tmp_path: Path, here: str
) -> None:
    config = small_run("train.epochs=3", f"data.source={here}:TenSums", f"run_dir={tmp_path}/run")
    job = Job.new(config, PlainProgress())
    assert job.config.train.iterations == 8  # 30 problems, 4 a time
    written = RunConfig.model_validate_json((tmp_path / "run" / "config.json").read_text())
    assert with_iterations(written, 1_000_000).train.iterations == 8


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data.source={here}:TenSums", "train.iterations=5"], r"train\.iterations = 5 and train\.epochs = 3 are both"),
        ([], r"data\.source = 'vime_train\.data\.arithmetic:ArithmeticSums' makes problems without end"),
        (["data.source={here}:TenSums", "optimizer.warmup_rollouts=128"], r"warmup_rollouts = 128 of 128 rollouts"),
        (["data.source={here}:TenSums", "debug.profile_iterations=[9]"], r"ends after train\.iterations = 8"),
    ],
)
def test_what_cannot_work_is_refused_and_nothing_is_written(
    small_run: Make, tmp_path: Path, here: str, overrides: list[str], message: str
) -> None:
    settings = [override.format(here=here) for override in overrides]
    config = small_run("train.epochs=3", f"run_dir={tmp_path}/run", *settings)
    with pytest.raises(ConfigError, match=message):
        Job.new(config, PlainProgress())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Silent", r"Silent' raised NotImplementedError: nobody has counted them"),
        ("BrokenSplit", r"BrokenSplit' raised LookupError: the file of the split is gone"),
    ],
)
def test_a_source_that_fails_is_named_before_anything_is_written(
    small_run: Make, tmp_path: Path, here: str, name: str, message: str
) -> None:
    config = small_run(f"data.source={here}:{name}", f"run_dir={tmp_path}/run", f"rollout.rewards.own={here}:judge")
    with pytest.raises(DataError, match=message):
        Job.new(config, PlainProgress())
    assert not (tmp_path / "run").exists()


def test_a_plan_counts_the_epochs_in_iterations(here: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "arithmetic.toml", *overrides(f"data.source={here}:TenSums", "train.epochs=7")]) == 2
    assert "train.iterations = 20 and train.epochs = 7 are both the length of the run" in capsys.readouterr().err
    assert main(["plan", *overrides(f"data.source={here}:TenSums", "train.epochs=7")]) == 0
    assert "run: 3 iterations after 0 supervised steps" in capsys.readouterr().out  # 70 problems, 32 a time
    assert main(["plan", *overrides("train.epochs=7")]) == 2
    assert "makes problems without end" in capsys.readouterr().err


def test_a_plan_for_a_model_of_its_own_tells_the_epochs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its tokenizer, and so its data, is loaded by the run."""
    make_model(str(tmp_path), ModelSection(), ArithmeticSums().tokenizer, seed=0)
    given = overrides(f"model.path={tmp_path}", "data.source=vime_train.data.files:FileProblems", "train.epochs=7")
    assert main(["plan", *given]) == 0
    assert "run: 7 epochs of the data source after 0 supervised steps" in capsys.readouterr().out


def overrides(*settings: str) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]
