"""The packed stream of a micro-batch as one rank holds it: index tensors, no data, no Python loop over samples.

The samples stand one after the other, each padded as `ContextParallel` says, then padding up to a whole multiple,
which forms a sequence of its own. Two closed forms, position of a place and place of a position, are inverse to
each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ._integers import round_up

if TYPE_CHECKING:
    from jaxtyping import Int64
    from torch import Tensor

    from ._context_parallel import ContextParallel


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stream:
    """Padded boundaries of the sequences in one packed stream.

    Attributes:
        starts: where each sample begins in the full padded stream, then where the trailing padding begins, then the
            end; ``[samples + 2]``.
        local_length: positions that each rank holds.
        cp: the layout.
    """

    starts: Int64[Tensor, " boundaries"]
    local_length: int
    cp: ContextParallel

    @property
    def boundaries(self) -> Int64[Tensor, " sequences_1"]:
        """Where each sequence begins, and the end; trailing padding is a sequence only where there is some."""
        return self.starts if self.starts[-1] > self.starts[-2] else self.starts[:-1]

    def places(self) -> tuple[Int64[Tensor, " local"], Int64[Tensor, " local"]]:
        """Sequence (``samples`` for trailing padding) and position within it, at every place that this rank holds."""
        place = torch.arange(self.local_length)
        if self.cp.layout == "contiguous":
            place += self.cp.rank * self.local_length
            sequence = torch.searchsorted(self.starts, place, right=True) - 1
            return sequence, place - self.starts[sequence]
        sequence = torch.searchsorted(self.starts // self.cp.size, place, right=True) - 1
        offset = place - self.starts[sequence] // self.cp.size
        if self.cp.size == 1:
            return sequence, offset
        chunk = self._chunks()[sequence]
        mirror = 2 * self.cp.size - 1 - self.cp.rank
        return sequence, torch.where(offset < chunk, self.cp.rank * chunk + offset, (mirror - 1) * chunk + offset)

    def owners(
        self, sequence: Int64[Tensor, " n"], position: Int64[Tensor, " n"]
    ) -> tuple[Int64[Tensor, " n"], Int64[Tensor, " n"]]:
        """Rank that holds each position, and the place where it holds it."""
        start = self.starts[sequence]
        if self.cp.size == 1:
            return torch.zeros_like(position), start + position
        if self.cp.layout == "contiguous":
            place = start + position
            return place // self.local_length, place % self.local_length
        chunk = self._chunks()[sequence]
        number = position // chunk
        second = number >= self.cp.size
        rank = torch.where(second, 2 * self.cp.size - 1 - number, number)
        return rank, start // self.cp.size + second * chunk + position % chunk

    def token_rows(self, total_lengths: Int64[Tensor, " samples"]) -> Int64[Tensor, " total"]:
        """Where each token of all samples stands in the concatenation of all ranks' places."""
        sample = torch.repeat_interleave(total_lengths)
        position = torch.arange(len(sample)) - (total_lengths.cumsum(0) - total_lengths)[sample]
        rank, place = self.owners(sample, position)
        return rank * self.local_length + place

    def _chunks(self) -> Int64[Tensor, " sequences"]:
        return (self.starts[1:] - self.starts[:-1]) // (2 * self.cp.size)


def build_stream(total_lengths: Int64[Tensor, " samples"], cp: ContextParallel, pad_multiple: int) -> Stream:
    """Lay samples out one after the other, padding each rank's share to a multiple; no samples get one multiple."""
    align = cp.sequence_align
    if cp.size == 1 or cp.layout == "contiguous":
        padded = _round_up(total_lengths, align)
        multiple = pad_multiple
    else:
        padded = _round_up(total_lengths, 2 * cp.size * align)
        multiple = math.lcm(pad_multiple, 2)
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), padded.cumsum(0)])
    local = round_up(max(int(starts[-1]), 1), multiple * cp.size) // cp.size
    return Stream(starts=torch.cat([starts, torch.tensor([local * cp.size])]), local_length=local, cp=cp)


def _round_up(lengths: Tensor, multiple: int) -> Tensor:
    return (lengths + multiple - 1) // multiple * multiple
