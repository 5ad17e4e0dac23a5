"""Where the tokens of a packed stream stand in the padded rows that one attention call takes. Integer arithmetic only.

Sequences of like length share a block of rows, `[sequences, longest]`, padded on the right; a new block begins where a
sequence is less than half as long as the block's longest, so rows longer than `SMALL` are never more than half padding.
Right padding under a causal mask is harmless: a real query never sees a padded key.

Always true: every local place is read from exactly one row (`AttentionRows.places`), and a query at position p of a
sequence attends to positions 0..p of that sequence wherever the CP ranks hold them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

SMALL = 64
"""Sequences up to this length share one block whatever their lengths: padding costs less there than another call."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowBlock:
    """Rows of one attention call.

    `queries[b, i]` is a local place, `keys[b, j]` a place in the concatenation of all CP ranks' streams; `positions[b,
    i]` is the query's position in its sequence (key j stands at position j).
    """

    queries: npt.NDArray[np.int64]
    keys: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttentionRows:
    """The blocks of one micro-batch, and for every local place its row in the blocks' outputs, one after the other."""

    blocks: tuple[RowBlock, ...]
    places: npt.NDArray[np.int64]


def attention_rows(cu_seqlens: npt.NDArray[np.int64], *, cp_rank: int, cp_size: int) -> AttentionRows:
    """Lay out sequences with the given full padded boundaries, cut zigzag over `cp_size` ranks.

    >>> attention_rows(np.array([0, 2, 5]), cp_rank=0, cp_size=1).blocks[0].queries.tolist()
    [[2, 3, 4], [0, 1, 1]]
    """
    lengths = np.diff(cu_seqlens) // cp_size
    starts = cu_seqlens[:-1] // cp_size
    local_length = int(cu_seqlens[-1]) // cp_size
    places = np.empty(local_length, dtype=np.int64)
    blocks, base = [], 0
    for members in _blocks_of_like_length(lengths):
        block = _row_block(starts[members], lengths[members], local_length, cp_rank=cp_rank, cp_size=cp_size)
        longest = block.queries.shape[1]
        real = np.arange(longest) < lengths[members][:, None]
        places[block.queries[real]] = base + np.flatnonzero(real)
        base += block.queries.size
        blocks.append(block)
    return AttentionRows(blocks=tuple(blocks), places=places)


def _blocks_of_like_length(lengths: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """Sequence numbers, longest first, cut wherever a length falls below half of its block's first."""
    order = np.argsort(-lengths, kind="stable")
    cuts: list[int] = []
    first = 0
    descending = lengths[order]
    while True:
        shortest = 0 if descending[first] <= SMALL else (descending[first] + 1) // 2
        end = int(np.searchsorted(-descending, -shortest, side="right"))
        if end >= len(order):
            return np.split(order, cuts)
        cuts.append(end)
        first = end


def _row_block(
    starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], local_length: int, *, cp_rank: int, cp_size: int
) -> RowBlock:
    queries = np.minimum(np.arange(lengths[0]), lengths[:, None] - 1)
    keys = np.minimum(np.arange(lengths[0] * cp_size), lengths[:, None] * cp_size - 1)
    if cp_size == 1:
        return RowBlock(queries=starts[:, None] + queries, keys=starts[:, None] + keys, positions=queries)
    chunk = lengths[:, None] // 2
    number, within = keys // chunk, keys % chunk
    second = number >= cp_size
    owner = np.where(second, 2 * cp_size - 1 - number, number)
    position = np.where(queries < chunk, cp_rank * chunk, (2 * cp_size - 2 - cp_rank) * chunk) + queries
    return RowBlock(
        queries=starts[:, None] + queries,
        keys=owner * local_length + starts[:, None] + second * chunk + within,
        positions=position,
    )
