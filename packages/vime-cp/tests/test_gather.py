"""Gathers over simulated ranks: values, and the gradient that the caller declared (C2, C4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vime_cp import (
    ContextParallel,
    gather_responses,
    gather_tokens,
    pack_micro_batch,
    pack_response,
    sample_sums,
    simulate,
    weighted_sum,
)

if TYPE_CHECKING:
    from types import ModuleType

    from vime_cp import PackedMicroBatch, SimulatedGroup

LAYOUTS = ["zigzag", "contiguous"]
splits = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10_000),
        "count": st.integers(1, 5),
        "size": st.sampled_from([1, 2, 3, 4, 8]),
        "layout": st.sampled_from(LAYOUTS),
    }
)


def pack(samples: list[Any], group: SimulatedGroup, layout: str) -> PackedMicroBatch:
    cp = ContextParallel(rank=group.rank, size=group.size, layout=layout, group=group)
    masks = [s.mask.double() for s in samples]
    return pack_micro_batch([s.tokens for s in samples], [s.response_length for s in samples], masks, cp=cp)


def local_log_probs(oracle: ModuleType, params: list[torch.Tensor], batch: PackedMicroBatch) -> torch.Tensor:
    return oracle.log_probs(params, batch.tokens[0], batch.position_ids[0], batch.labels)


def gradients(loss: torch.Tensor, params: list[torch.Tensor]) -> torch.Tensor:
    grads = torch.autograd.grad(loss, params, allow_unused=True, materialize_grads=True)
    return torch.cat([g.flatten() for g in grads])


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-12, atol=1e-12)


@given(split=splits)
def test_every_rank_gets_every_response_whole(oracle: ModuleType, split: dict[str, Any]) -> None:
    samples = oracle.random_samples(split["seed"], split["count"])

    def rank(group: SimulatedGroup) -> list[torch.Tensor]:
        batch = pack(samples, group, split["layout"])
        column = pack_response([s.old_log_probs for s in samples], batch)
        return gather_responses(column, batch, gradient="none")

    for gathered in simulate(split["size"], rank):
        for sample, values in zip(samples, gathered, strict=True):
            expected = sample.old_log_probs.clone()
            if sample.response_length == len(sample.tokens):
                expected[0] = 0
            assert torch.equal(values, expected)
            assert not values.requires_grad


@given(split=splits)
def test_partial_losses_through_a_gather_have_the_gradient_of_the_whole(
    oracle: ModuleType, split: dict[str, Any]
) -> None:
    """A sequence-level loss: each rank scores its own tokens with a number made of the whole sequence."""
    samples = oracle.random_samples(split["seed"], split["count"])
    params = oracle.parameters()
    whole = sum(torch.exp(oracle.response_log_probs(params, s).mean()) * s.mask.sum() for s in samples if len(s.mask))

    def rank(group: SimulatedGroup) -> torch.Tensor:
        batch = pack(samples, group, split["layout"])
        gathered = gather_responses(local_log_probs(oracle, params, batch), batch, gradient="partial")
        per_sample = torch.stack([torch.exp(x.mean()) if len(x) else x.sum() for x in gathered])
        weights = torch.ones(len(samples), dtype=torch.float64)
        return weighted_sum(per_sample[batch.sample_index], batch.mask, weights, batch.sample_index)

    split_loss = sum(simulate(split["size"], rank))
    if isinstance(whole, torch.Tensor):
        assert close(split_loss, whole)
        assert close(gradients(split_loss, params), gradients(whole, params))


@given(split=splits)
def test_sample_sums_are_those_of_the_whole_sequence(oracle: ModuleType, split: dict[str, Any]) -> None:
    samples = oracle.random_samples(split["seed"], split["count"])
    params = oracle.parameters()
    sums = torch.stack([(oracle.response_log_probs(params, s) * s.mask).sum() for s in samples])
    whole = (torch.exp(sums / 5) * sums.new_tensor([s.mask.sum() for s in samples])).sum()

    def rank(group: SimulatedGroup) -> torch.Tensor:
        batch = pack(samples, group, split["layout"])
        new = local_log_probs(oracle, params, batch)
        total = sample_sums(new, batch.mask, batch.sample_index, batch.num_samples, cp=batch.cp, gradient="partial")
        assert close(total, sums)
        spread = torch.exp(total / 5)[batch.sample_index]
        return weighted_sum(spread, batch.mask, torch.ones_like(sums), batch.sample_index)

    split_loss = sum(simulate(split["size"], rank))
    assert close(split_loss, whole)
    assert close(gradients(split_loss, params), gradients(whole, params))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [2, 4])
def test_slime_1748_a_replicated_loss_is_not_counted_once_per_rank(oracle: ModuleType, size: int, layout: str) -> None:
    """Reported: gradients cp times too large, since backward summed what every rank had computed in full."""
    samples = oracle.random_samples(3, 4)
    params = oracle.parameters()
    whole = sum((oracle.response_log_probs(params, s) ** 2).sum() for s in samples)

    def rank(group: SimulatedGroup, gradient: Any) -> torch.Tensor:
        batch = pack(samples, group, layout)
        gathered = gather_responses(local_log_probs(oracle, params, batch), batch, gradient=gradient)
        return sum((x**2).sum() for x in gathered)

    expected = gradients(whole, params)
    replicated = simulate(size, lambda group: rank(group, "replicated"))
    assert all(close(loss, whole) for loss in replicated)
    assert close(gradients(sum(replicated), params), expected)
    partial = simulate(size, lambda group: rank(group, "partial"))
    assert close(gradients(sum(partial), params), size * expected), "the declared semantics must differ"


@pytest.mark.parametrize("gradient", ["partial", "replicated"])
def test_sample_sums_have_the_gradient_that_was_declared(oracle: ModuleType, gradient: Any) -> None:
    """Every rank computes the same loss of the sums: replicated is its gradient, partial counts it once per rank."""
    samples = oracle.random_samples(4, 4)
    params = oracle.parameters()
    whole = sum((oracle.response_log_probs(params, s) * s.mask).sum() ** 2 for s in samples)

    def rank(group: SimulatedGroup) -> torch.Tensor:
        batch = pack(samples, group, "zigzag")
        new = local_log_probs(oracle, params, batch)
        return (sample_sums(new, batch.mask, batch.sample_index, 4, cp=batch.cp, gradient=gradient) ** 2).sum()

    times = 1 if gradient == "replicated" else 3
    assert close(gradients(sum(simulate(3, rank)), params), times * gradients(whole, params))


@pytest.mark.parametrize("size", [1, 2, 8])
def test_C4_a_gather_that_needs_no_gradient_carries_no_graph(oracle: ModuleType, size: int) -> None:
    samples = oracle.random_samples(5, 3)
    params = oracle.parameters()

    def rank(group: SimulatedGroup) -> bool:
        batch = pack(samples, group, "zigzag")
        new = local_log_probs(oracle, params, batch)
        gathered = gather_responses(new, batch, gradient="none")
        sums = sample_sums(new, batch.mask, batch.sample_index, 3, cp=batch.cp, gradient="none")
        with torch.no_grad():
            gathered += gather_responses(new, batch, gradient="partial")
        return new.requires_grad and not any(x.requires_grad for x in [*gathered, sums])

    assert all(simulate(size, rank))


@given(split=splits, total=st.integers(0, 40), data=st.data())
def test_one_sample_is_gathered_as_it_was_sliced(split: dict[str, Any], total: int, data: st.DataObject) -> None:
    response = data.draw(st.integers(0, total))
    x = torch.arange(1, 1 + 2 * response, dtype=torch.float64).view(response, 2)

    def rank(group: SimulatedGroup) -> torch.Tensor:
        cp = ContextParallel(rank=group.rank, size=group.size, layout=split["layout"], group=group)
        return cp.gather_response(cp.slice_response(x, total, response), total, response, gradient="none")

    expected = x.clone()
    if total == response:
        expected[:1] = 0
    assert all(torch.equal(gathered, expected) for gathered in simulate(split["size"], rank))


@given(split=splits)
def test_tokens_are_gathered_as_they_were_packed(oracle: ModuleType, split: dict[str, Any]) -> None:
    """Values at inputs, prompts included, and the gradient of partial losses through them."""
    samples = oracle.random_samples(split["seed"], split["count"])
    params = oracle.parameters()
    whole = sum(params[0][s.tokens].sum(1).exp().sum() ** 2 for s in samples)

    def rank(group: SimulatedGroup) -> torch.Tensor:
        batch = pack(samples, group, split["layout"])
        tokens = gather_tokens(batch.tokens[0], batch, gradient="none")
        assert all(torch.equal(x, s.tokens) for x, s in zip(tokens, samples, strict=True))
        gathered = gather_tokens(params[0][batch.tokens[0]].sum(1).exp(), batch, gradient="partial")
        return torch.stack([x.sum() ** 2 for x in gathered]).sum() / group.size

    loss = sum(simulate(split["size"], rank))
    assert close(loss, whole)
    assert close(gradients(loss, params), gradients(whole, params))


@given(split=splits, total=st.integers(0, 40))
def test_tokens_of_one_sample_are_gathered_as_they_were_sliced(split: dict[str, Any], total: int) -> None:
    x = torch.arange(2 * total).view(total, 2)

    def rank(group: SimulatedGroup) -> torch.Tensor:
        cp = ContextParallel(rank=group.rank, size=group.size, layout=split["layout"], group=group)
        return cp.gather_tokens(cp.slice_tokens(x, pad_value=-1), total, gradient="none")

    assert all(torch.equal(gathered, x) for gathered in simulate(split["size"], rank))
    with pytest.raises(ValueError, match="pass the part that slice_tokens cuts"):
        ContextParallel(rank=0, size=2).gather_tokens(x.new_zeros(2 * total + 3), total)


def test_several_columns_and_other_dtypes_share_one_gather() -> None:
    def rank(group: SimulatedGroup) -> list[list[float]]:
        cp = ContextParallel(rank=group.rank, size=2, group=group)
        batch = pack_micro_batch([torch.arange(6), torch.arange(3)], [4, 1], cp=cp)
        column = pack_response([torch.tensor([[1, 2]] * 4), torch.tensor([[3, 4]])], batch)
        return [x.tolist() for x in gather_responses(column, batch, gradient="none")]

    assert simulate(2, rank) == [[[[1, 2]] * 4, [[3, 4]]]] * 2


def test_integers_have_no_gradient_and_a_gather_needs_its_group() -> None:
    batch = pack_micro_batch([torch.arange(6)], [4], cp=ContextParallel(rank=1, size=2))
    with pytest.raises(ValueError, match="has no group: a gather over 2 ranks needs `group`"):
        gather_responses(torch.zeros(batch.local_length), batch, gradient="none")
    whole = pack_micro_batch([torch.arange(6)], [4])
    with pytest.raises(ValueError, match="int64 has no gradient: gather it with gradient='none'"):
        gather_responses(torch.zeros(6, dtype=torch.int64), whole, gradient="partial")
    with pytest.raises(ValueError, match="gradient is 'sum': give one of"):
        gather_responses(torch.zeros(6), whole, gradient="sum")  # type: ignore[arg-type]
