"""Sinks: what fails to open stops the run, what fails later warns and is in the JSONL file."""

from __future__ import annotations

import io
import json
import math
import sys

import pytest

from vime_metrics import (
    ConsoleSink,
    JsonlSink,
    MlflowSink,
    MultiSink,
    SinkError,
    SinkWarning,
    TensorBoardSink,
    WandbSink,
)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_jsonl_keeps_one_line_per_step(tmp_path):
    sink = JsonlSink(tmp_path / "run" / "metrics.jsonl")
    sink.write(0, {"loss": 0.1, "tokens": 2.0**53})
    sink.write(1, {"loss": math.nan, "sum": math.inf})
    sink.close()
    assert lines(sink.path) == [
        {"step": 0, "loss": 0.1, "tokens": 2.0**53},
        {"step": 1, "loss": None, "sum": "inf"},
    ]


def test_jsonl_is_on_disk_after_each_write_and_continues_a_file(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for step in range(2):
        sink = JsonlSink(path)
        sink.write(step, {"x": 1.0})
        assert len(lines(path)) == step + 1
        sink.close()


def test_a_jsonl_file_that_cannot_be_opened_is_fatal(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match=r"JsonlSink cannot open .*give a path that can be written"):
        JsonlSink(tmp_path / "file" / "metrics.jsonl")


def test_a_jsonl_file_that_cannot_be_written_is_fatal(tmp_path):
    record = JsonlSink(tmp_path / "metrics.jsonl")
    record.close()
    with pytest.raises(SinkError, match="JsonlSink cannot write step 3"):
        MultiSink(record).write(3, {"x": 1.0})


def test_the_console_shows_a_table():
    stream = io.StringIO()
    ConsoleSink(stream).write(7, {"train/loss": 0.123456789, "n": 4096.0})
    assert stream.getvalue() == "step 7\n  train/loss  0.123457\n  n           4096\n"


class Service:
    """A tracking service, as a wandb run or as mlflow, that is down on the steps in `down`."""

    def __init__(self, down=(), error=ConnectionError):
        self.steps, self.ended, self.down, self.error = {}, False, down, error

    def log(self, data, step):
        if step in self.down:
            raise self.error("service is down")
        self.steps[step] = data

    log_metrics = log

    def finish(self):
        self.ended = True

    end_run = finish


def test_a_write_that_fails_warns_and_stays_in_the_jsonl_file(tmp_path):
    up, down = Service(), Service(down=[1])
    with MultiSink(JsonlSink(tmp_path / "m.jsonl"), WandbSink(down), MlflowSink(up)) as sink:
        sink.write(0, {"x": 1.0})
        with pytest.warns(
            SinkWarning, match=r"WandbSink cannot write step 1: service is down\. The step is in .*m\.jsonl"
        ):
            sink.write(1, {"x": 2.0})
        sink.write(2, {"x": 3.0})
    assert [line["step"] for line in lines(tmp_path / "m.jsonl")] == [0, 1, 2]
    assert down.steps == {0: {"x": 1.0}, 2: {"x": 3.0}}
    assert up.steps == {0: {"x": 1.0}, 1: {"x": 2.0}, 2: {"x": 3.0}}
    assert up.ended
    assert down.ended


def test_mlflow_warns_too(tmp_path):
    with (
        MultiSink(JsonlSink(tmp_path / "m.jsonl"), MlflowSink(Service(down=[0]))) as sink,
        pytest.warns(SinkWarning, match="MlflowSink cannot write step 0"),
    ):
        sink.write(0, {"x": 1.0})


def test_an_error_of_another_kind_is_a_bug_and_passes(tmp_path):
    with (
        MultiSink(JsonlSink(tmp_path / "m.jsonl"), WandbSink(Service(down=[0], error=TypeError))) as sink,
        pytest.raises(TypeError),
    ):
        sink.write(0, {"x": 1.0})


def test_closing_closes_all_sinks_also_when_one_cannot(tmp_path):
    class Stuck(Service):
        def finish(self):
            raise ConnectionError("no upload")

    other = Service()
    sink = MultiSink(JsonlSink(tmp_path / "m.jsonl"), WandbSink(Stuck()), WandbSink(other))
    with pytest.warns(SinkWarning, match="WandbSink did not close: no upload"):
        sink.close()
    assert other.ended


def test_mlflow_names_hold_what_mlflow_allows():
    service = Service()
    MlflowSink(service).write(0, {"eval/pass@8": 0.5, "length/0..5": 1.0})
    assert service.steps[0] == {"eval/pass_8": 0.5, "length/0..5": 1.0}


@pytest.mark.parametrize(
    ("module", "extra", "open_sink"),
    [
        ("tensorboard", "tensorboard", lambda: TensorBoardSink("unused")),
        ("wandb", "wandb", lambda: WandbSink.open(project="p")),
        ("mlflow", "mlflow", lambda: MlflowSink.open(experiment="e")),
    ],
)
def test_a_missing_extra_prints_its_pip_line(monkeypatch, module, extra, open_sink):
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Absent(module), *sys.meta_path])
    with pytest.raises(ModuleNotFoundError, match=rf"{module} is not installed: pip install 'vime-metrics\[{extra}\]'"):
        open_sink()


def test_what_an_installed_extra_itself_misses_is_told_as_it_is(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Absent("tensorboard", misses="protobuf_of_it"), *sys.meta_path])
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'protobuf_of_it'$"):
        TensorBoardSink("unused")


class Absent:
    """An import finder for which `module` is not installed, or lacks the module `misses`."""

    def __init__(self, module, misses=None):
        self.module, self.misses = module, misses or module

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == self.module:
            raise ModuleNotFoundError(f"No module named {self.misses!r}", name=self.misses)
        return
