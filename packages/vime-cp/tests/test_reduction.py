"""Reductions over a packed micro-batch: masked values stay out, and more samples do not mean more kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from vime_cp import pack_micro_batch, sample_sums, weighted_sum


class CountKernels(TorchDispatchMode):
    """Counts every operator that reaches the backend, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def micro_batch(num_samples: int, length: int = 3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    index = torch.arange(num_samples).repeat_interleave(length)
    return torch.randn(num_samples * length, requires_grad=True), torch.ones(num_samples * length), index


@given(values=st.lists(st.tuples(st.floats(-5, 5), st.sampled_from([0.0, 0.5, 1.0]), st.integers(-1, 3)), max_size=30))
def test_weighted_sum_is_the_double_sum(values: list[tuple[float, float, int]]) -> None:
    weights = [0.5, -1.0, 2.0, 0.25]
    x, mask, index = torch.tensor(values, dtype=torch.float64).view(-1, 3).unbind(1)
    expected = sum(weights[i] * m * v for v, m, i in values if i >= 0)
    result = weighted_sum(x, mask, torch.tensor(weights, dtype=torch.float64), index.long())
    assert result.item() == pytest.approx(expected, abs=1e-12)
    sums = sample_sums(x, mask, index.long(), 4, gradient="none")
    per_sample = [sum(m * v for v, m, i in values if i == sample) for sample in range(4)]
    assert sums.tolist() == pytest.approx(per_sample, abs=1e-12)


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf")])
def test_C3_what_stands_at_a_masked_position_reaches_neither_value_nor_gradient(poison: float) -> None:
    values = torch.tensor([1.0, poison, 2.0, poison], requires_grad=True)
    mask, index, weights = torch.tensor([1.0, 0, 1, 0]), torch.tensor([0, 0, 1, -1]), torch.tensor([0.5, 0.25])
    loss = weighted_sum(values, mask, weights, index) + sample_sums(values, mask, index, 2).sum()
    loss.backward()
    assert loss.item() == 1.0 + 3.0
    assert values.grad is not None
    assert values.grad.tolist() == [1.5, 0, 1.25, 0]


def test_padding_of_minus_infinity_does_not_poison_a_filler() -> None:
    """Reported for the zero-weight trick ``0 * logits.sum()``: it is NaN for infinite logits."""
    filler = pack_micro_batch([], [], pad_multiple=4)
    values = torch.full((4,), float("-inf"), requires_grad=True)
    loss = weighted_sum(values, filler.mask, torch.zeros(0), filler.sample_index)
    loss.backward()
    assert loss.item() == 0
    assert values.grad is not None
    assert values.grad.tolist() == [0, 0, 0, 0]


def test_low_precision_values_are_added_in_fp32() -> None:
    values = torch.full((4096,), 1.0 + 2**-7, dtype=torch.bfloat16, requires_grad=True)
    index = torch.zeros(4096, dtype=torch.long)
    loss = weighted_sum(values, torch.ones(4096), torch.tensor([1 / 4096], dtype=torch.float64), index)
    loss.backward()
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(1.0 + 2**-7, rel=1e-6)
    assert values.grad is not None
    assert values.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("function", ["weighted_sum", "sample_sums"])
def test_the_number_of_kernels_does_not_depend_on_the_number_of_samples(function: str) -> None:
    counts = set()
    for num_samples in (1, 8, 1024):
        values, mask, index = micro_batch(num_samples)
        weights = torch.ones(num_samples, dtype=torch.float64)
        with CountKernels() as kernels:
            if function == "weighted_sum":
                weighted_sum(values, mask, weights, index).backward()
            else:
                sample_sums(values, mask, index, num_samples).sum().backward()
        counts.add(kernels.count)
    assert len(counts) == 1
    assert counts.pop() < 30


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="asserts that a CUDA device is not waited for")
def test_aggregation_does_not_synchronise_with_the_device() -> None:
    values, mask, index = (x.cuda() for x in micro_batch(64))
    weights = torch.ones(64, dtype=torch.float64, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        weighted_sum(values, mask, weights, index).backward()
        sample_sums(values, mask, index, 64)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("function", ["weighted_sum", "sample_sums"])
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"values": torch.zeros(2, 3)}, "values has shape (2, 3), mask (3,), sample_index (3,)"),
        ({"mask": torch.zeros(4)}, "values has shape (3,), mask (4,), sample_index (3,)"),
        ({"sample_index": torch.zeros(1).long()}, "sample_index (1,): give all three one entry per local position"),
        ({"mask": torch.zeros(3, device="meta")}, "values is on cpu, mask on meta, sample_index on cpu"),
        ({"values": torch.zeros(3).long()}, "values has dtype torch.int64: give floating-point values"),
    ],
)
def test_what_is_refused(function: str, changes: dict[str, torch.Tensor], text: str) -> None:
    given = {"values": torch.zeros(3), "mask": torch.zeros(3), "sample_index": torch.zeros(3).long()} | changes
    values, mask, index = given["values"], given["mask"], given["sample_index"]
    calls = {
        "weighted_sum": lambda: weighted_sum(values, mask, torch.zeros(1), index),
        "sample_sums": lambda: sample_sums(values, mask, index, 1),
    }
    with pytest.raises(ValueError) as error:  # noqa: PT011
        calls[function]()
    assert str(error.value).startswith(f"{function}: ")
    assert text in str(error.value)


@pytest.mark.parametrize("weights", [torch.zeros(1, 1), torch.zeros(1, device="meta")])
def test_weights_that_are_refused(weights: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="give one weight per sample of the micro-batch"):
        weighted_sum(torch.zeros(3), torch.zeros(3), weights, torch.zeros(3).long())
