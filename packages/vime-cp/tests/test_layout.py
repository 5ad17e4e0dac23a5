"""C1: over the ranks of a layout every position is held once and every response token is scored once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vime_cp import ContextParallel

if TYPE_CHECKING:
    from types import ModuleType

SIZES = [1, 2, 3, 4, 8]
LAYOUTS = ["zigzag", "contiguous"]


def ranks(size: int, layout: str = "zigzag", align: int = 1) -> list[ContextParallel]:
    return [ContextParallel(rank=r, size=size, layout=layout, sequence_align=align) for r in range(size)]


@st.composite
def lengths(draw: st.DrawFn) -> tuple[int, int]:
    total = draw(st.integers(0, 70))
    return total, draw(st.one_of(st.sampled_from([0, min(1, total), total]), st.integers(0, total)))


EMPTY = range(0)


@pytest.mark.parametrize(
    ("total", "response", "size", "chunk", "expected"),
    [
        (16, 8, 2, 4, [(EMPTY, range(12, 15)), (range(7, 8), range(8, 12))]),
        (10, 6, 2, 3, [(EMPTY, EMPTY), (range(3, 6), range(6, 9))]),
        (9, 3, 2, 3, [(EMPTY, EMPTY), (range(5, 6), range(6, 8))]),
        (7, 1, 2, 2, [(EMPTY, EMPTY), (EMPTY, range(5, 6))]),
        (
            13,
            9,
            4,
            2,
            [(EMPTY, EMPTY), (range(3, 4), EMPTY), (range(4, 6), range(10, 12)), (range(6, 8), range(8, 10))],
        ),
        (5, 4, 4, 1, [(range(k, k + 1), EMPTY) for k in range(4)]),
    ],
)
def test_golden_zigzag_logit_ranges(
    total: int, response: int, size: int, chunk: int, expected: list[tuple[range, range]]
) -> None:
    assert [cp.chunk_length(total) for cp in ranks(size)] == [chunk] * size
    assert [cp.logit_ranges(total, response) for cp in ranks(size)] == expected


@given(lengths=lengths(), size=st.sampled_from(SIZES), layout=st.sampled_from(LAYOUTS), align=st.integers(1, 3))
def test_every_position_is_held_once_and_where_enumeration_puts_it(
    oracle: ModuleType, lengths: tuple[int, int], size: int, layout: str, align: int
) -> None:
    total, _ = lengths
    held = oracle.held_positions(total, size, layout, align)
    for cp in ranks(size, layout, align):
        mine = [p for piece in cp.token_ranges(total) for p in piece]
        assert mine == [p for p in held[cp.rank] if p < total]
        assert cp.local_length(total) == len(held[cp.rank])
        assert cp.padded_length(total) == sum(map(len, held))
        tokens = torch.arange(total)
        assert cp.slice_tokens(tokens, pad_value=-7).tolist() == [p if p < total else -7 for p in held[cp.rank]]
    assert sorted(p for positions in held for p in positions if p < total) == list(range(total))


@given(lengths=lengths(), size=st.sampled_from(SIZES), layout=st.sampled_from(LAYOUTS), align=st.integers(1, 3))
def test_every_response_token_with_a_predecessor_is_scored_once(
    lengths: tuple[int, int], size: int, layout: str, align: int
) -> None:
    total, response = lengths
    prompt = total - response
    scored = []
    for cp in ranks(size, layout, align):
        logits = [p for piece in cp.logit_ranges(total, response) for p in piece]
        held = {p for piece in cp.token_ranges(total) for p in piece}
        assert set(logits) <= held
        assert cp.slice_response(torch.arange(response), total, response).tolist() == [p + 1 - prompt for p in logits]
        scored += [p + 1 for p in logits]
    assert sorted(scored) == [t for t in range(prompt, total) if t > 0]


@pytest.mark.parametrize("size", SIZES)
def test_a_slice_keeps_trailing_dimensions_and_the_graph_also_where_it_is_empty(size: int) -> None:
    x = torch.zeros(3, 2, requires_grad=True)
    for cp in ranks(size):
        part = cp.slice_response(x, 30, 3)
        assert part.shape[1:] == (2,)
        assert part.requires_grad
        assert cp.slice_tokens(x).shape == (cp.local_length(3), 2)


def test_C12_slime_1377_the_last_rank_does_not_trim_twice() -> None:
    for size in SIZES:
        parts = [cp.slice_response(torch.arange(9), 20, 9) for cp in ranks(size)]
        assert sum(map(len, parts)) == 9


def test_C13_te_1930_an_odd_length_loses_no_token() -> None:
    held = [p for cp in ranks(2) for piece in cp.token_ranges(7) for p in piece]
    assert sorted(held) == list(range(7))
    assert ranks(2)[0].padded_length(7) == 8


def test_slime_73_a_rank_may_own_nothing_of_a_response_after_a_long_prompt() -> None:
    counts = [sum(map(len, cp.logit_ranges(10, 6))) for cp in ranks(2)]
    assert counts == [0, 6]
    assert ranks(2)[0].slice_response(torch.arange(6), 10, 6).tolist() == []


def test_without_a_prompt_the_first_token_is_scored_by_nobody() -> None:
    for layout in LAYOUTS:
        parts = [cp.slice_response(torch.arange(5), 5, 5).tolist() for cp in ranks(4, layout)]
        assert sorted(token for part in parts for token in part) == [1, 2, 3, 4]
