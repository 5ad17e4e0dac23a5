"""Recorder: add from anywhere, drain once, reduce what came out."""

from __future__ import annotations

from threading import Thread

import pytest

from vime_metrics import Count, Max, Mean, MetricError, Recorder, SimulatedWorld, Sum, record, recording


def test_metrics_of_micro_batches_add():
    recorder = Recorder()
    for loss, tokens in [(3.0, 12.0), (3.0, 4.0)]:
        recorder.add("loss", Mean(loss, tokens))
    assert recorder.drain() == {"loss": Mean(6.0, 16.0)}
    assert recorder.drain() == {}


def test_a_whole_report_is_added_under_a_prefix():
    recorder = Recorder()
    recorder.update({"kl": Mean(1, 1), "n": Count(2)}, prefix="train/")
    assert list(recorder.drain()) == ["train/kl", "train/n"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("sum", 4.0), ("count", 2.0), ("mean", 2.0), ("min", 1.0), ("max", 3.0), ("std", 1.0), ("quantiles", 2.0)],
)
def test_reductions_by_name(name, value):
    recorder = Recorder()
    recorder.record("x", [1.0, 3.0], reduce=name)
    assert recorder.drain()["x"].value == value


def test_last_takes_what_was_recorded_last():
    recorder = Recorder()
    for lr in (3e-4, 1e-4, 2e-4):
        recorder.record("lr", lr, reduce="last")
    recorder.record("lr", 5e-5, reduce="last")
    assert recorder.drain()["lr"].value == 5e-5


def test_an_unknown_reduction_names_the_key_and_the_known_ones():
    with pytest.raises(MetricError, match="metric 'x': unknown reduction 'avg'; known are count, last, max, mean, min"):
        Recorder().record("x", 1.0, reduce="avg")


def test_errors_name_the_key():
    recorder = Recorder()
    with pytest.raises(MetricError, match="metric 'x': Mean values must be real numbers"):
        recorder.record("x", ["a"])
    with pytest.raises(MetricError, match="metric 'x' is a float"):
        recorder.add("x", 1.0)
    recorder.add("x", Sum(1))
    with pytest.raises(MetricError, match="metric 'x': cannot add Max to Sum"):
        recorder.add("x", Max(1))


def test_threads_lose_nothing():
    recorder = Recorder()
    threads = [Thread(target=lambda: [recorder.add("n", Count(1)) for _ in range(500)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert recorder.drain() == {"n": Count(4000)}


def test_record_reaches_the_enclosing_recorder_only():
    record("x", Sum(1))
    with recording(Recorder()) as outer:
        record("x", Sum(2))
        with recording(Recorder()) as inner:
            record("x", Sum(4))
        record("x", Sum(8))
    assert outer.drain() == {"x": Sum(10)}
    assert inner.drain() == {"x": Sum(4)}


def test_what_is_drained_is_what_is_reduced():
    recorders = [Recorder(), Recorder()]
    recorders[0].record("longest", [2, 10], reduce="max")
    recorders[1].record("longest", [2], reduce="max")
    assert SimulatedWorld(2).all_reduce([each.drain() for each in recorders])[0] == {"longest": 10.0}


def test_the_last_of_every_rank_counts_for_the_same_step():
    recorders = [Recorder(), Recorder()]
    for step in range(3):
        for rank, recorder in enumerate(recorders):
            recorder.record("lr", 10.0 * step + rank, reduce="last")
        found = SimulatedWorld(2).all_reduce([each.drain() for each in recorders])[1]
        assert found == {"lr": 10.0 * step + 0.5}
