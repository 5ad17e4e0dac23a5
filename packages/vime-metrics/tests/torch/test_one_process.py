"""What needs torch but no process group."""

from __future__ import annotations

import pytest
import torch.distributed as dist

import torch
from vime_metrics import Max, Mean, MetricError, Recorder, Std, Sum
from vime_metrics.torch import all_reduce, fetch, reduce
from vime_metrics.torch._roll_call import explain


def test_without_process_groups_a_step_is_reduced_as_by_a_group_of_one():
    assert not dist.is_initialized()
    assert all_reduce({"loss": Mean(3, 12)}) == {"loss": 0.25}
    assert reduce({"loss": Mean(3, 12)}) == {"loss": 0.25}


def test_a_tensor_is_a_number():
    assert Sum(torch.tensor(2, dtype=torch.int32)) == Sum(2.0)
    assert Mean(torch.tensor(1.5, requires_grad=True), torch.tensor([3.0])) == Mean(1.5, 3.0)


def test_a_tensor_is_an_array():
    values = torch.tensor([[1.0, 2.0], [3.0, 6.0]], dtype=torch.float16, requires_grad=True)
    assert Mean.of(values) == Mean(12.0, 4.0)
    assert Std.of(values).value == pytest.approx(1.8708286933869707)
    assert Max.of(values.T) == Max(6.0)
    assert Mean.of([torch.tensor(1.0), torch.tensor([2.0, 3.0])]) == Mean(6.0, 3.0)
    assert Mean.of(values > 2.5, weights=values) == Mean(9.0, 12.0)


def test_integers_beyond_float32_survive():
    assert Sum(torch.tensor(16777217)).value == 16777217.0
    assert Sum.of(torch.tensor([100000001])).value == 100000001.0
    assert fetch({"n": torch.tensor(16777217), "x": torch.tensor(0.5)}) == {"n": 16777217.0, "x": 0.5}


def test_a_recorder_takes_tensors():
    recorder = Recorder()
    recorder.record("loss", torch.tensor([1.0, 3.0], requires_grad=True))
    assert recorder.drain() == {"loss": Mean(4.0, 2.0)}


def test_many_elements_are_no_number():
    with pytest.raises(MetricError, match="Mean.total must be one real number"):
        Mean(torch.ones(2), 1)
    with pytest.raises(ValueError, match=r"'x' has shape \(2,\): give tensors of one element"):
        fetch({"x": torch.ones(2)})


def test_fetch_keeps_names_and_order():
    found = fetch({"b": torch.tensor(1), "a": 2, "c": torch.tensor([[3.0]], requires_grad=True)})
    assert list(found.items()) == [("b", 1.0), ("a", 2.0), ("c", 3.0)]


@pytest.mark.gpu
def test_fetch_reads_a_device_once():
    device = torch.device("cuda")
    with torch.cuda.device(device):
        scalars = {str(at): torch.tensor(float(at), device=device) for at in range(100)}
        torch.cuda.set_sync_debug_mode("warn")
        with pytest.warns(UserWarning, match="synchroniz") as caught:
            assert fetch(scalars)["7"] == 7.0
        torch.cuda.set_sync_debug_mode("default")
        assert len(caught) == 1


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ([1], r"rank 1 \(global rank 6\) of the group died or never came within 2 s"),
        ([], "every rank of the group answered afterwards, so one came late or the network failed"),
        (None, r"the store .* is gone too, so the rank that hosts it \(usually global rank 0\) has died"),
    ],
)
def test_the_error_says_who_is_missing(missing, text):
    import re

    found = explain(missing, [4, 6], "metric 'loss'", 2.0, "timed out")
    assert re.search(text, found)
    assert "The collective said: timed out" in found
