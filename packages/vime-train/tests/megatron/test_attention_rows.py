"""Rows of packed sequences against the obvious: one sequence after the other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vime_train.megatron._attention import AttentionBlock, _attend, _mask, rotate
from vime_train.megatron._attention_rows import SMALL, attention_rows


def boundaries(lengths: list[int], cp_size: int) -> np.ndarray:
    align = 2 * cp_size if cp_size > 1 else 1
    return np.cumsum([0, *(-(-length // align) * align for length in lengths)])


def zigzag_positions(cu_seqlens: np.ndarray, rank: int, size: int) -> list[tuple[int, int]]:
    """(sequence, position) at each local place, by the definition."""
    places = []
    for number, (begin, end) in enumerate(itertools.pairwise(cu_seqlens)):
        length = int(end - begin)
        if size == 1:
            places += [(number, position) for position in range(length)]
            continue
        chunk = length // (2 * size)
        for piece in (rank, 2 * size - 1 - rank):
            places += [(number, position) for position in range(piece * chunk, (piece + 1) * chunk)]
    return places


@given(lengths=st.lists(st.integers(1, 200), min_size=1, max_size=12), cp_size=st.sampled_from([1, 2, 3, 4]))
def test_every_place_is_read_once_and_sees_exactly_its_own_past(lengths: list[int], cp_size: int) -> None:
    cu_seqlens = boundaries(lengths, cp_size)
    stream = [zigzag_positions(cu_seqlens, rank, cp_size) for rank in range(cp_size)]
    gathered = [place for rank in stream for place in rank]
    for rank in range(cp_size):
        rows = attention_rows(cu_seqlens, cp_rank=rank, cp_size=cp_size)
        queries = np.concatenate([block.queries.ravel() for block in rows.blocks])
        np.testing.assert_array_equal(queries[rows.places], np.arange(len(stream[rank])))
        taken = np.zeros(queries.size, dtype=bool)
        taken[rows.places] = True
        base = 0
        for block in rows.blocks:
            width = block.queries.shape[1]
            for row, keys in enumerate(block.keys):
                for column in range(width):
                    if taken[base + row * width + column]:
                        number, position = stream[rank][block.queries[row, column]]
                        assert block.positions[row, column] == position
                        seen = [gathered[key] for key in keys[: position + 1]]
                        assert seen == [(number, earlier) for earlier in range(position + 1)]
            base += block.queries.size


@given(lengths=st.lists(st.integers(1, 3000), min_size=1, max_size=40))
def test_rows_are_at_most_half_padding_beyond_the_smallest_block(lengths: list[int]) -> None:
    rows = attention_rows(boundaries(lengths, 1), cp_rank=0, cp_size=1)
    for block in rows.blocks:
        real = len(np.unique(block.queries))
        assert block.queries.shape[1] <= SMALL or block.queries.size <= 2 * real


@pytest.mark.parametrize(("heads", "groups"), [(4, 4), (4, 2), (6, 1)])
def test_attention_over_rows_is_attention_of_each_sequence(heads: int, groups: int) -> None:
    torch.manual_seed(0)
    lengths = [70, 3, 150, 1, 40, 64]
    cu_seqlens = boundaries(lengths, 1)
    total, dim = int(cu_seqlens[-1]), 8
    query, key, value = (torch.randn(total, count, dim, dtype=torch.float64) for count in (heads, groups, groups))
    rows = attention_rows(cu_seqlens, cp_rank=0, cp_size=1)
    for masked in (False, True):
        outputs = [
            _attend(
                query,
                torch.stack([key, value], dim=1),
                AttentionBlock(
                    queries=torch.from_numpy(block.queries).flatten(),
                    keys=torch.from_numpy(block.keys).flatten(),
                    num_rows=len(block.queries),
                    mask=_mask(torch.from_numpy(block.positions), block.keys.shape[1]) if masked else None,
                ),
            )
            for block in rows.blocks
        ]
        found = torch.cat(outputs)[torch.from_numpy(rows.places)].view(total, heads, dim)
        for begin, end in itertools.pairwise(cu_seqlens):
            for head in range(heads):
                group = head * groups // heads
                scores = query[begin:end, head] @ key[begin:end, group].T / dim**0.5
                future = torch.ones_like(scores).triu(1).bool()
                expected = scores.masked_fill(future, -torch.inf).softmax(-1) @ value[begin:end, group]
                torch.testing.assert_close(found[begin:end, head], expected)


def test_rotation_keeps_lengths_and_depends_on_distance_alone() -> None:
    torch.manual_seed(0)
    vector = torch.randn(1, 2, 8, dtype=torch.float64)
    frequencies = 1.0 / 100 ** (torch.arange(4, dtype=torch.float64) / 4)

    def at(position: int, x: torch.Tensor) -> torch.Tensor:
        angles = (position * frequencies)[None]
        return rotate(x, angles.cos()[:, None], angles.sin()[:, None])

    other = torch.randn_like(vector)
    torch.testing.assert_close(at(5, vector).norm(dim=-1), vector.norm(dim=-1))
    torch.testing.assert_close((at(9, vector) * at(4, other)).sum(-1), (at(6, vector) * at(1, other)).sum(-1))
