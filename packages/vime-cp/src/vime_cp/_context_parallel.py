"""Where each position of a sample lives under context parallelism (CP), and slices and gathers of one sample.

Laws
- Over the ranks of a layout every position is held by exactly one rank.
- A response token is scored where its *predecessor* lives, since that position's logits predict it. Over the ranks
  every response token that has a predecessor is scored exactly once.
- What a rank holds depends on its arguments alone, so all ranks can be examined in one process; only gathers
  communicate.

Zigzag cuts a sample, padded to ``2 * size * c`` positions, into ``2 * size`` chunks of ``c``; rank ``r`` holds
chunks ``r`` and ``2 * size - 1 - r``, which gives every rank the same causal-attention work. Contiguous gives rank
``r`` the ``r``-th slice of the packed stream; the methods here see one sample, that is, a stream that holds nothing
else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import torch

from ._collectives import Gradient, all_gather_rows
from ._group import Group, group_rank, group_size
from ._integers import require_int, require_response_length, round_up
from ._response_index import build_response_index
from ._stream import build_stream

if TYPE_CHECKING:
    from jaxtyping import Shaped
    from torch import Tensor

Layout = Literal["zigzag", "contiguous"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextParallel:
    """One rank of a context-parallel group, and how sequences are laid out over that group.

    Attributes:
        rank: this rank within the group, ``0 <= rank < size``.
        size: number of ranks that share each sequence; 1 means no context parallelism.
        layout: ``"zigzag"`` (two chunks per rank) or ``"contiguous"`` (one slice of the packed stream).
        group: the process group of exactly ``size`` ranks. Only gathers use it; slicing never does.
        sequence_align: each chunk (at size 1 or contiguous: each sample) is rounded up to this many tokens, for
            example the tensor-parallel size, so that padded samples are multiples of ``2 * cp * tp``.

    >>> from vime_cp import ContextParallel
    >>> [ContextParallel(rank=r, size=2).token_ranges(10) for r in range(2)]
    [(range(0, 3), range(9, 10)), (range(3, 6), range(6, 9))]
    """

    rank: int = 0
    size: int = 1
    layout: Layout = "zigzag"
    group: Group = None
    sequence_align: int = 1

    def __post_init__(self) -> None:
        """Refuse what no gather could ever serve, before any rank waits in one."""
        require_int("size", self.size, minimum=1)
        require_int("rank", self.rank, minimum=0)
        require_int("sequence_align", self.sequence_align, minimum=1)
        if self.rank >= self.size:
            raise ValueError(
                f"ContextParallel: rank is {self.rank} but size is {self.size}: give a rank in [0, {self.size - 1}], "
                f"the rank within the context-parallel group, not the global rank"
            )
        if self.layout not in get_args(Layout):
            raise ValueError(f"ContextParallel: layout is {self.layout!r}: give one of {get_args(Layout)}")
        if self.group is not None:
            _require_matching_group(self)

    def padded_length(self, total_length: int) -> int:
        """Length of the sample after padding, over all ranks together."""
        return self.local_length(total_length) * self.size

    def local_length(self, total_length: int) -> int:
        """Positions this rank stores for one sample, padding included; the same on every rank."""
        require_int("total_length", total_length, minimum=0)
        if self.size == 1:
            return round_up(total_length, self.sequence_align)
        if self.layout == "contiguous":
            return -(-round_up(total_length, self.sequence_align) // self.size)
        return 2 * self.chunk_length(total_length)

    def chunk_length(self, total_length: int) -> int:
        """Length of each contiguous piece that a rank stores: half its share under zigzag, otherwise all of it."""
        if self.size == 1 or self.layout == "contiguous":
            return self.local_length(total_length)
        return round_up(-(-total_length // (2 * self.size)), self.sequence_align)

    def token_ranges(self, total_length: int) -> tuple[range, ...]:
        """Positions of a sample that this rank holds, in the order in which it stores them; padding is left out.

        Returns two ranges under zigzag with ``size > 1``, otherwise one. A range may be empty.
        """
        require_int("total_length", total_length, minimum=0)
        return tuple(_clip(piece, 0, total_length) for piece in self._pieces(total_length))

    def logit_ranges(self, total_length: int, response_length: int) -> tuple[range, ...]:
        """Positions on this rank whose *next* token is a response token, aligned with `token_ranges`.

        With an empty prompt the first response token has no predecessor; no rank scores it.

        >>> [ContextParallel(rank=r, size=2).logit_ranges(16, 8) for r in range(2)]
        [(range(0, 0), range(12, 15)), (range(7, 8), range(8, 12))]
        """
        require_response_length(total_length, response_length)
        first = total_length - response_length - 1
        return tuple(_clip(piece, max(first, 0), total_length - 1) for piece in self._pieces(total_length))

    def slice_tokens(self, x: Shaped[Tensor, "total ..."], pad_value: float = 0) -> Shaped[Tensor, "local ..."]:
        """This rank's part of a tensor with one entry per token, padded to `local_length`.

        Args:
            x: one entry per token of one sample.
            pad_value: what stands at positions beyond the sample.

        >>> ContextParallel(rank=0, size=2).slice_tokens(torch.arange(10), pad_value=-1)
        tensor([ 0,  1,  2,  9, -1, -1])
        """
        parts = []
        for piece in self._pieces(x.shape[0]):
            held = _clip(piece, 0, x.shape[0])
            parts += [x[held.start : held.stop], x.new_full((len(piece) - len(held), *x.shape[1:]), pad_value)]
        return torch.cat(parts)

    def gather_tokens(
        self, x_local: Shaped[Tensor, "local ..."], total_length: int, *, gradient: Gradient = "partial"
    ) -> Shaped[Tensor, "total ..."]:
        """Values of all tokens, on every rank, from each rank's part as `slice_tokens` cuts it.

        Args:
            x_local: this rank's values, padding included.
            total_length: tokens of prompt and response.
            gradient: as for `gather_response`.

        Raises:
            ValueError: ``x_local`` does not have `local_length` entries.
        """
        if x_local.dim() == 0 or x_local.shape[0] != self.local_length(total_length):
            raise ValueError(
                f"gather_tokens: x_local has shape {tuple(x_local.shape)} but rank {self.rank} of {self.size} stores "
                f"{self.local_length(total_length)} of {total_length} tokens: pass the part that slice_tokens cuts"
            )
        if total_length == 0:
            return x_local
        total = torch.tensor([total_length])
        stream = build_stream(total, self, pad_multiple=1)
        sequence, position = stream.places()
        targets = torch.where((sequence == 0) & (position < total_length), position, -1).to(x_local.device)
        rows = stream.token_rows(total).to(x_local.device)
        return all_gather_rows(x_local, self, rows=rows, targets=targets, gradient=gradient)

    def slice_response(
        self, x: Shaped[Tensor, "response ..."], total_length: int, response_length: int
    ) -> Shaped[Tensor, "scored ..."]:
        """This rank's part of a tensor with one entry per response token: the entries of the tokens that it scores.

        Raises:
            ValueError: ``x`` does not have ``response_length`` entries.

        >>> [ContextParallel(rank=r, size=2).slice_response(torch.arange(8), 16, 8).tolist() for r in range(2)]
        [[5, 6, 7], [0, 1, 2, 3, 4]]
        """
        ranges = self.logit_ranges(total_length, response_length)
        if x.shape[0] != response_length:
            raise ValueError(
                f"slice_response: x has shape {tuple(x.shape)} but response_length is {response_length}: "
                f"pass one entry per response token of the whole sample, without prompt and not yet sliced"
            )
        shift = 1 - (total_length - response_length)
        return torch.cat([x[r.start + shift : r.stop + shift] if r else x[:0] for r in ranges])

    def gather_response(
        self,
        x_local: Shaped[Tensor, "scored ..."],
        total_length: int,
        response_length: int,
        *,
        gradient: Gradient = "partial",
    ) -> Shaped[Tensor, "response ..."]:
        """Values of the whole response, on every rank, from each rank's part as `slice_response` cuts it.

        A first token without a prompt, which nobody scores, gets 0. For a whole micro-batch use `gather_responses`.

        Args:
            x_local: this rank's values; a slice of a computed tensor, also where it is empty.
            total_length: tokens of prompt and response.
            response_length: tokens of the response.
            gradient: ``"partial"`` where each rank's loss is its share of one sum, ``"replicated"`` where all ranks
                compute the same loss from the result, ``"none"`` for a result without graph.

        Raises:
            ValueError: ``x_local`` is not this rank's part. Another rank's part may fit, and that rank would wait:
                `gather_responses` is safer, since its checks come out alike on all ranks.
        """
        ranges = self.logit_ranges(total_length, response_length)
        count = sum(map(len, ranges))
        if x_local.dim() == 0 or x_local.shape[0] != count:
            raise ValueError(
                f"gather_response: x_local has shape {tuple(x_local.shape)} but rank {self.rank} of {self.size} scores "
                f"{count} of {response_length} response tokens: pass the part that slice_response cuts"
            )
        total, response = torch.tensor([total_length]), torch.tensor([response_length])
        index = build_response_index(build_stream(total, self, pad_multiple=1), total, response).to(x_local.device)
        padded = torch.cat([x_local, x_local.new_zeros((len(index.places) - count, *x_local.shape[1:]))])
        return index.gather(padded, self, gradient=gradient)

    def _pieces(self, total_length: int) -> tuple[range, ...]:
        """Stored positions, padding included, in storage order."""
        length = self.chunk_length(total_length)
        first = range(self.rank * length, (self.rank + 1) * length)
        if self.size == 1 or self.layout == "contiguous":
            return (first,)
        mirror = 2 * self.size - 1 - self.rank
        return first, range(mirror * length, (mirror + 1) * length)


def _clip(piece: range, low: int, high: int) -> range:
    start, stop = max(piece.start, low), min(piece.stop, high)
    return range(start, stop) if start < stop else range(0)


def _require_matching_group(cp: ContextParallel) -> None:
    size, rank = group_size(cp.group), group_rank(cp.group)
    if size != cp.size or rank != cp.rank:
        raise ValueError(
            f"ContextParallel: rank={cp.rank} and size={cp.size} but the group has rank={rank} of size={size}: "
            f"pass the context-parallel group itself, with its own rank and size"
        )
