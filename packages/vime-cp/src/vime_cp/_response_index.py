"""Where response tokens are scored, for this rank and for the gather that brings all ranks' values together.

All of it follows from lengths that every rank knows, so no rank has to ask another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ._collectives import Gradient, all_gather_rows
from ._move import move_tensors

if TYPE_CHECKING:
    from jaxtyping import Bool, Int64, Shaped
    from torch import Tensor

    from ._context_parallel import ContextParallel
    from ._stream import Stream


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ResponseIndex:
    """Where response tokens are scored: ``total`` counts the response tokens of all samples of the micro-batch.

    Attributes:
        places: local places that score a token on this rank, padded with 0 to the largest number on any rank, at
            least 1, so that no collective is empty; ``[capacity]``.
        targets: the response token each of them scores, -1 where padded; ``[capacity]``.
        rows: for every response token, its row in the ranks' concatenated ``[size * capacity]``; 0 if nobody scores it.
        scored: whether the token has a predecessor, hence is scored at all; ``[total]``.
        at_place: the response token scored at each local place, -1 where none; ``[local]``.
        counts: for every sample the tokens that this rank scores.
    """

    places: Int64[Tensor, " capacity"]
    targets: Int64[Tensor, " capacity"]
    rows: Int64[Tensor, " total"]
    scored: Bool[Tensor, " total"]
    at_place: Int64[Tensor, " local"]
    counts: tuple[int, ...]

    @property
    def count(self) -> int:
        """Tokens that this rank scores."""
        return sum(self.counts)

    def gather(
        self, values: Shaped[Tensor, "capacity ..."], cp: ContextParallel, *, gradient: Gradient
    ) -> Shaped[Tensor, "total ..."]:
        """Values of all response tokens from each rank's values at its `places`; 0 for tokens that nobody scores."""
        rows = all_gather_rows(values, cp, rows=self.rows, targets=self.targets, gradient=gradient)
        return torch.where(self.scored.view(-1, *[1] * (values.dim() - 1)), rows, 0)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> ResponseIndex:
        """The same index with every tensor on ``device``."""
        return move_tensors(self, device, non_blocking=non_blocking)


def build_response_index(stream: Stream, total: Tensor, response: Tensor) -> ResponseIndex:
    """Index of the response tokens of samples with ``total`` tokens, the last ``response`` of them the response."""
    cp = stream.cp
    sample = torch.repeat_interleave(response)
    within = torch.arange(len(sample)) - (response.cumsum(0) - response)[sample]
    predecessor = (total - response)[sample] + within - 1
    scored = predecessor >= 0
    owner, place = stream.owners(sample, predecessor.clamp(min=0))
    per_rank = (owner == torch.arange(cp.size)[:, None]) & scored
    count_so_far = per_rank.cumsum(1)
    capacity = max(1, int(per_rank.sum(1).max()))
    targets = per_rank[cp.rank].nonzero()[:, 0]
    at_place = torch.full((stream.local_length,), -1)
    at_place[place[targets]] = targets
    missing = capacity - len(targets)
    return ResponseIndex(
        places=torch.cat([place[targets], place.new_zeros(missing)]),
        targets=torch.cat([targets, targets.new_full((missing,), -1)]),
        rows=torch.where(scored, owner * capacity + count_so_far.gather(0, owner[None])[0] - 1, 0),
        scored=scored,
        at_place=at_place,
        counts=tuple(torch.bincount(sample[targets], minlength=len(total)).tolist()),
    )
