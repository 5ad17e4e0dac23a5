"""Bad input is told by argument, shape and remedy, on every rank alike and before any collective."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from vime_cp import (
    ContextParallel,
    SimulatedGroup,
    check_finite,
    gather_responses,
    pack_micro_batch,
    pack_response,
    pack_routed_experts,
    pack_tokens,
    simulate,
    unpack_response,
)

TOKENS = [torch.arange(5), torch.arange(4)]
BATCH = pack_micro_batch(TOKENS, [2, 3])


def refused(text: str, function: Any, *args: Any, **options: Any) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        function(*args, **options)
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rank": 2, "size": 2}, "rank is 2 but size is 2: give a rank in [0, 1]"),
        ({"rank": -1}, "rank is -1: give an int of at least 0"),
        ({"size": 0}, "size is 0: give an int of at least 1"),
        ({"size": 2.0}, "size is 2.0 of type float: give an int"),
        ({"size": True}, "size is True of type bool: give an int"),
        ({"sequence_align": 0}, "sequence_align is 0: give an int of at least 1"),
        ({"layout": "ring"}, "layout is 'ring': give one of ('zigzag', 'contiguous')"),
    ],
)
def test_a_rank_that_cannot_be(options: dict[str, Any], text: str) -> None:
    refused(text, ContextParallel, **options)


def test_a_group_of_another_size_is_refused_before_anyone_waits_in_it() -> None:
    def rank(group: SimulatedGroup) -> None:
        refused(
            f"rank=0 and size=2 but the group has rank={group.rank} of size=3",
            ContextParallel,
            rank=0,
            size=2,
            group=group,
        )

    simulate(3, rank)


def test_lengths_that_contradict_each_other() -> None:
    cp = ContextParallel()
    refused("response_length is 6 but total_length is 5", cp.logit_ranges, 5, 6)
    refused("response_length is -1: give an int of at least 0", cp.logit_ranges, 5, -1)
    refused("total_length is -1", cp.token_ranges, -1)
    refused("x has shape (4,) but response_length is 3", cp.slice_response, torch.zeros(4), 9, 3)


def test_C18_slime_1135_a_column_that_was_not_sliced_is_a_shape_error() -> None:
    """Teacher log-probs of the whole response where this rank's part belongs."""
    for rank, scored in enumerate([1, 2]):
        cp = ContextParallel(rank=rank, size=2)
        refused(
            f"x_local has shape (3,) but rank {rank} of 2 scores {scored} of 3 response tokens: "
            f"pass the part that slice_response cuts",
            cp.gather_response,
            torch.zeros(3),
            11,
            3,
        )


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((TOKENS, [2]), "tokens has 2 samples but response_lengths has 1"),
        ((TOKENS, [2, 5]), "sample 1: response_length is 5 but total_length is 4"),
        ((TOKENS, [2, 2.0]), "sample 1: response_length is 2.0 of type float"),
        (([torch.zeros(5)], [2]), "tokens[0] has shape (5,) and dtype torch.float32: give integer token ids"),
        (([torch.zeros(1, 5).long()], [2]), "tokens[0] has shape (1, 5)"),
        (([torch.zeros(0).long()], [0]), "tokens[0] is empty"),
        (([TOKENS[0], TOKENS[1].int()], [1, 1]), "tokens[1] is torch.int32 (4,) on cpu but tokens[0] is torch.int64"),
        (([TOKENS[0], TOKENS[1].to("meta")], [1, 1]), "on meta but tokens[0] is torch.int64 (5,) on cpu"),
        ((TOKENS, [2, 3], [torch.ones(2)]), "loss_masks has 1 entries for 2 samples"),
        ((TOKENS, [2, 3], [torch.ones(2), torch.ones(4)]), "loss_masks[1] has shape (4,) but response_lengths[1] is 3"),
        ((TOKENS, [2, 3], [torch.ones(2, 1), torch.ones(3, 1)]), "loss_masks[0] has shape (2, 1): give [response]"),
        ((TOKENS, [2, 3], [torch.ones(2), torch.ones(3).int()]), "loss_masks[1] is torch.int32"),
        (
            (TOKENS, [2, 3], [torch.ones(2, device="meta"), torch.ones(3, device="meta")]),
            "is on meta but tokens[0] on cpu",
        ),
        ((TOKENS, [5, 3], None), "sample 0 has no prompt, so nothing predicts its first token"),
    ],
)
def test_samples_that_cannot_be_packed(args: tuple[Any, ...], text: str) -> None:
    refused(text, pack_micro_batch, *args)


def test_a_pad_multiple_below_one_is_refused() -> None:
    refused("pad_multiple is 0: give an int of at least 1", pack_micro_batch, TOKENS, [2, 3], pad_multiple=0)


def test_columns_that_do_not_fit() -> None:
    refused("pack_response: values has 1 entries for 2 samples", pack_response, [torch.zeros(2)], BATCH)
    refused(
        "values[1] has shape (4,) but response_lengths[1] is 3: give the whole sample's values",
        pack_response,
        [torch.zeros(2), torch.zeros(4)],
        BATCH,
    )
    refused("values[1] is torch.float64", pack_response, [torch.zeros(2), torch.zeros(3).double()], BATCH)
    meta = [torch.zeros(2, device="meta"), torch.zeros(3, device="meta")]
    refused("pack_response: values is on meta but the micro-batch on cpu", pack_response, meta, BATCH)
    refused("but total_lengths[0] is 5", pack_tokens, [torch.zeros(2), torch.zeros(4)], BATCH)
    experts = [torch.zeros(4, 2, 3).long(), torch.zeros(4, 2, 3).long()]
    sizes = {"num_layers": 2, "topk": 3, "num_experts": 8}
    refused(
        "experts[1] has shape (4, 2, 3) but total_lengths - 1[1] is 3", pack_routed_experts, experts, BATCH, **sizes
    )
    experts[1] = experts[1][1:]
    refused("num_layers is 4 and topk is 3", pack_routed_experts, experts, BATCH, **sizes | {"num_layers": 4})
    refused("topk is 3 but num_experts is 2", pack_routed_experts, experts, BATCH, **sizes | {"num_experts": 2})


def test_local_values_that_do_not_fit() -> None:
    for function in (unpack_response, lambda x, b: gather_responses(x, b, gradient="none")):
        refused("local has shape (8,) but the micro-batch holds 9 places on cp rank 0", function, torch.zeros(8), BATCH)
        refused("local is on meta but the micro-batch on cpu", function, torch.zeros(9, device="meta"), BATCH)


def test_a_value_that_is_not_finite_is_reported_with_sample_and_token() -> None:
    for rank, name in enumerate(["response token 4 (token 7 of 8)", "response token 0 (token 3 of 8)"]):
        cp = ContextParallel(rank=rank, size=2)
        batch = pack_micro_batch([torch.arange(1), torch.arange(8)], [0, 5], [torch.ones(0), torch.ones(5)], cp=cp)
        values = torch.full(batch.mask.shape, float("nan"))
        refused(
            f"log_probs is nan at sample 1, {name} on cp rank {rank}; ", check_finite, values, batch, name="log_probs"
        )
        check_finite(torch.where(batch.mask != 0, 0.0, float("inf")), batch)
    refused("values has shape (3,) but the micro-batch holds 9 places", check_finite, torch.zeros(3), BATCH)
