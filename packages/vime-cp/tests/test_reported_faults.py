"""Faults that users of other trainers reported about loss normalisation, each with its smallest input.

C8 is in `test_megatron_schedules`, C12 and C13 in `test_layout`, C18 in `test_bad_input`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from vime_cp import ContextParallel, megatron_loss, pack_micro_batch, pack_response, sample_weights, weighted_sum

if TYPE_CHECKING:
    from collections.abc import Sequence


def step_loss(
    micro_batches: Sequence[Sequence[tuple[int, float]]], aggregation: str = "token_mean", **ids: object
) -> float:
    """Loss of a step whose samples have (tokens, loss per token), added up over micro-batches."""
    samples = [sample for micro_batch in micro_batches for sample in micro_batch]
    weights = sample_weights(aggregation, [tokens for tokens, _ in samples], **ids)  # type: ignore[arg-type]
    total, first = 0.0, 0
    for micro_batch in micro_batches:
        counts = torch.tensor([tokens for tokens, _ in micro_batch])
        index = torch.arange(len(micro_batch)).repeat_interleave(counts)
        values = torch.tensor([loss for _, loss in micro_batch], dtype=torch.float64)[index]
        mine = weights[first : first + len(micro_batch)]
        total += weighted_sum(values, torch.ones_like(values), mine, index).item()
        first += len(micro_batch)
    return total


def test_C1_transformers_34191_accumulation_is_not_a_mean_of_means() -> None:
    """1 token of loss 10, then 9 tokens of loss 1: 5.5 was reported, 19/10 is right."""
    assert step_loss([[(1, 10.0)], [(9, 1.0)]]) == pytest.approx(1.9, rel=1e-15)


def test_C2_ms_swift_10117_the_loss_is_not_divided_by_accumulation_again() -> None:
    whole = step_loss([[(2, 1.0), (3, 2.0), (4, 3.0), (5, 4.0)]])
    assert step_loss([[(2, 1.0)], [(3, 2.0)], [(4, 3.0)], [(5, 4.0)]]) == pytest.approx(whole, rel=1e-15)


def test_C3_trl_5619_the_normaliser_is_that_of_the_step_not_of_the_generation_batch() -> None:
    """Two steps cut from one generation batch each have the loss of their own tokens."""
    steps = [[(4, 1.0)], [(4, 1.0)]]
    assert [step_loss([step]) for step in steps] == [1.0, 1.0]


def test_C4_trl_3231_the_denominator_is_not_local_to_a_rank() -> None:
    """Ranks with 12 and 4 tokens and sums 3 and 3: 0.5 was reported, 6/16 is right."""
    assert step_loss([[(12, 3 / 12)], [(4, 3 / 4)]]) == pytest.approx(0.375, rel=1e-15)


def test_C5_verl_2776_the_mean_over_prompts_and_that_over_tokens_are_two_choices() -> None:
    """Group 1 has a sum of 10 over 10 tokens, group 2 has 2 over 1."""
    samples = [[(10, 1.0)], [(1, 2.0)]]
    assert step_loss(samples, "prompt_mean", prompt_ids=[1, 2]) == pytest.approx(1.5, rel=1e-15)
    assert step_loss(samples, "token_mean") == pytest.approx(12 / 11, rel=1e-15)


@pytest.mark.parametrize("aggregation", ["token_mean", "sample_mean", "rollout_mean"])
def test_C6_miles_2796_a_fully_masked_sample_is_not_a_phantom_token(aggregation: str) -> None:
    """4 unmasked tokens and a masked sample were divided by 5."""
    assert step_loss([[(4, 1.0), (0, 7.0)]], aggregation) == step_loss([[(4, 1.0)]], aggregation) == 1.0


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("layout", ["zigzag", "contiguous"])
def test_C7_megatron_7513_one_valid_token_has_the_same_gradient_for_every_cp(size: int, layout: str) -> None:
    """Reported: the token was counted on one CP rank only, which halved and quartered its gradient."""
    mask = torch.tensor([0.0, 0, 1, 0, 0])
    weights = sample_weights("token_mean", [mask.sum()])
    x = torch.ones(5, dtype=torch.float64, requires_grad=True)
    for rank in range(size):
        cp = ContextParallel(rank=rank, size=size, layout=layout)  # type: ignore[arg-type]
        batch = pack_micro_batch([torch.arange(9)], [5], [mask], cp=cp)
        weighted_sum(pack_response([x], batch), batch.mask, weights, batch.sample_index).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0, 0, 1, 0, 0]


def test_C9_verl_6049_the_token_count_is_that_of_whole_masks_so_nothing_is_reduced_over_cp() -> None:
    """DP 2 x CP 2: a count reduced over DP of CP-sharded masks was half of the 16 tokens."""
    mask_sums = [6, 10]
    assert sample_weights("token_mean", mask_sums).tolist() == [1 / 16, 1 / 16]
    for sample, mask_sum in enumerate(mask_sums):
        held = 0.0
        for rank in range(2):
            batch = pack_micro_batch([torch.arange(20)], [mask_sum], cp=ContextParallel(rank=rank, size=2))
            held += batch.mask.sum().item()
        assert held == mask_sum, f"sample {sample}: the ranks' masks are shards of the whole"


@pytest.mark.parametrize("masks", [[[0, 0], [0, 0, 0]], [[0, 0], [1, 1, 1]]])
def test_C15_unsloth_1286_fully_masked_samples_or_ranks_give_no_nan(masks: list[list[int]]) -> None:
    """All masks 0, and a rank whose samples are all masked: loss and gradient 0, not NaN."""
    weights = sample_weights("rollout_mean", [sum(mask) for mask in masks])
    for sample, mask in enumerate(masks):
        batch = pack_micro_batch([torch.arange(4)], [len(mask)], [torch.tensor(mask)])
        values = torch.full((4,), 2.0, requires_grad=True)
        loss = weighted_sum(values, batch.mask, weights[sample : sample + 1], batch.sample_index)
        loss.backward()
        assert values.grad is not None
        if not sum(mask):
            assert loss.item() == 0
            assert values.grad.tolist() == [0, 0, 0, 0]
        assert torch.isfinite(values.grad).all()


def test_C17_skyrl_weights_folded_in_once_make_the_loss_a_plain_sum() -> None:
    samples = [(3, 0.7), (1, -2.0), (8, 0.1), (5, 1.3)]
    whole = step_loss([samples])
    for cut in range(1, 4):
        assert step_loss([samples[:cut], samples[cut:]]) == pytest.approx(whole, rel=1e-12)


def test_slime_1933_siblings_in_different_micro_batches_do_not_change_the_loss() -> None:
    """A = {3 tokens of 2, 1 token of 2}, B = {2 tokens of 0.5}; a mean of sample means would be 2.25 times 2/3."""
    ids = {"rollout_ids": ["A", "B", "A"]}
    assert step_loss([[(3, 2.0), (2, 0.5)], [(1, 2.0)]], "rollout_mean", **ids) == pytest.approx(1.25, rel=1e-15)
    assert step_loss([[(3, 2.0)], [(2, 0.5)], [(1, 2.0)]], "rollout_mean", **ids) == pytest.approx(1.25, rel=1e-15)


def test_verl_6609_megatron_always_gets_three_values_and_logs_that_it_does_not_divide() -> None:
    loss = torch.tensor(0.5, requires_grad=True)
    for per_token in (False, True):
        sizes = {"num_microbatches": 3, "dp": 2, "cp": 2, "calculate_per_token_loss": per_token}
        triple = megatron_loss(loss, log={"loss": loss}, **sizes)  # type: ignore[arg-type]
        assert len(triple) == 3
        scaled, num_tokens, log = triple
        assert num_tokens.dtype == torch.int32
        with torch.no_grad():
            scaled /= 3
        assert log["loss"].item() == 0.5
        assert log["loss"].data_ptr() != scaled.data_ptr()
        assert not log["loss"].requires_grad


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"cp": 0}, "cp is 0: give an int of at least 1"),
        ({"num_microbatches": 2.0}, "num_microbatches is 2.0 of type float"),
        ({"num_tokens": 5}, "num_tokens is 5 and step_num_tokens is None: give both or neither"),
        ({"num_tokens": 5, "step_num_tokens": 4}, "step_num_tokens is 4: give an int of at least 5"),
        ({"num_tokens": 5, "step_num_tokens": 2**31}, "but Megatron adds token counts in int32"),
        (
            {"partial_sum": torch.zeros(2)},
            "partial_sum has shape (2,) and dtype torch.float32: give a floating-point scalar",
        ),
    ],
)
def test_what_the_megatron_adapter_refuses(changes: dict[str, object], text: str) -> None:
    given: dict[str, object] = {"partial_sum": torch.tensor(1.0), "num_microbatches": 1, "dp": 1, "cp": 1} | changes
    with pytest.raises(ValueError) as error:  # noqa: PT011
        megatron_loss(**given, log={}, calculate_per_token_loss=True)  # type: ignore[arg-type]
    assert text in str(error.value)
