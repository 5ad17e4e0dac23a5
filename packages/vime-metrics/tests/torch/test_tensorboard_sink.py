"""TensorBoardSink with the real TensorBoard: what it writes can be read back."""

from __future__ import annotations

import pytest

from vime_metrics import JsonlSink, MultiSink, SinkError, TensorBoardSink

accumulators = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator", reason="pip install 'vime-metrics[tensorboard]'"
)


def test_what_was_written_can_be_read(tmp_path):
    with MultiSink(JsonlSink(tmp_path / "m.jsonl"), TensorBoardSink(tmp_path / "events")) as sink:
        sink.write(0, {"train/loss": 0.5})
        sink.write(3, {"train/loss": 0.25})
    events = accumulators.EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    tensors = events.Tensors("train/loss")
    assert [event.step for event in tensors] == [0, 3]
    assert [event.tensor_proto.float_val[0] for event in tensors] == [0.5, 0.25]


def test_a_directory_that_cannot_be_made_is_fatal(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match="TensorBoardSink cannot open"):
        TensorBoardSink(tmp_path / "file" / "events")
