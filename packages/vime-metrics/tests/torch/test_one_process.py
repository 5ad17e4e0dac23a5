"""What needs torch but no process group."""

from __future__ import annotations

import re

import pytest
import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from vime_metrics import Max, Mean, MetricError, Recorder, Std, Sum
from vime_metrics.torch import all_reduce, fetch, reduce
from vime_metrics.torch._roll_call import explain


def test_without_process_groups_a_step_is_reduced_as_by_a_group_of_one():
    assert not dist.is_initialized()
    assert all_reduce({"loss": Mean(3, 12)}) == {"loss": 0.25}
    assert reduce({"loss": Mean(3, 12)}) == {"loss": 0.25}
    with pytest.raises(MetricError, match="group_dst=1 is not a rank of a group of 1"):
        reduce({"loss": Mean(3, 12)}, group_dst=1)


def test_a_tensor_is_a_number():
    assert Sum(torch.tensor(2, dtype=torch.int32)) == Sum(2.0)
    assert Mean(torch.tensor(1.5, requires_grad=True), torch.tensor([3.0])) == Mean(1.5, 3.0)


def test_a_tensor_is_an_array():
    values = torch.tensor([[1.0, 2.0], [3.0, 6.0]], dtype=torch.float16, requires_grad=True)
    assert Mean.of(values) == Mean(12.0, 4.0)
    assert Std.of(values).value == pytest.approx(1.8708286933869707)
    assert Max.of(values.T) == Max(6.0)
    assert Mean.of([torch.tensor(1.0), torch.tensor([2.0, 3.0])]) == Mean(6.0, 3.0)
    assert Mean.of([torch.tensor(1.0), 2, 3.5]) == Mean(6.5, 3.0)
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
    with pytest.raises(MetricError, match=r"Mean\.total must be one real number"):
        Mean(torch.ones(2), 1)
    with pytest.raises(ValueError, match=r"'x' has shape \(2,\): give tensors of one element"):
        fetch({"x": torch.ones(2)})


def test_fetch_keeps_names_and_order():
    found = fetch({"b": torch.tensor(1), "a": 2, "c": torch.tensor([[3.0]], requires_grad=True)})
    assert list(found.items()) == [("b", 1.0), ("a", 2.0), ("c", 3.0)]


class Reads(TorchDispatchMode):
    """Counts how often a single element is read, each of which waits for a device."""

    number = 0

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.number += operator is torch.ops.aten._local_scalar_dense.default
        return operator(*args, **(kwargs or {}))


def test_fetch_reads_no_tensor_on_its_own():
    scalars = {str(at): torch.tensor(float(at)) for at in range(100)}
    with Reads() as reads:
        fetched = fetch(scalars)
        assert reads.number == 0
        assert fetched == {name: float(scalar) for name, scalar in scalars.items()}
        assert reads.number == 100


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ([1], r"rank 1 \(global rank 6\) of the group died or never came within 2 s"),
        ([], "every rank of the group answered afterwards, so one came late or the network failed"),
        (None, r"the store .* is gone too, so the rank that hosts it \(usually global rank 0\) has died"),
    ],
)
def test_the_error_says_who_is_missing(missing, text):
    found = explain(missing, [4, 6], "metric 'loss'", 2.0, "timed out")
    assert re.search(text, found)
    assert "The collective said: timed out" in found
