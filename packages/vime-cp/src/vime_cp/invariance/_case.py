"""A batch and a way to split it, small enough to print: what a check draws, runs and shrinks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vime_cp import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSpec:
    """One sample: how many prompt tokens, the loss mask of its response, and the rollout it belongs to.

    Attributes:
        prompt: prompt tokens, at least 1.
        mask: one 0 or 1 per response token.
        rollout: id of the rollout; samples with equal ids are siblings.
        seed: what the sample's columns are drawn from.
    """

    prompt: int
    mask: tuple[int, ...]
    rollout: int
    seed: int

    def __str__(self) -> str:
        mask = "".join(map(str, self.mask)) or "none"
        return f"{self.prompt} + {len(self.mask)} tokens (prompt + response), mask {mask}, rollout {self.rollout}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Which samples run where.

    Attributes:
        ranks: for every DP rank its micro-batches, each a tuple of sample positions; all ranks have equally many.
        cp: number of CP ranks that share every micro-batch.
        layout: how sequences lie over the CP ranks.
    """

    ranks: tuple[tuple[tuple[int, ...], ...], ...]
    cp: int = 1
    layout: Layout = "zigzag"

    @classmethod
    def whole(cls, num_samples: int) -> Split:
        """Everything in one micro-batch on one rank."""
        return cls(ranks=((tuple(range(num_samples)),),))

    @property
    def num_microbatches(self) -> int:
        """Micro-batches per DP rank."""
        return len(self.ranks[0])

    def __str__(self) -> str:
        layout = f" ({self.layout})" if self.cp > 1 else ""
        lines = [f"dp {len(self.ranks)} x cp {self.cp}{layout}, micro-batches per rank: {self.num_microbatches}"]
        for rank, micro_batches in enumerate(self.ranks):
            lines.append(f"dp rank {rank} runs samples {', then '.join(str(list(m)) for m in micro_batches)}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Samples and a split of them."""

    samples: tuple[SampleSpec, ...]
    split: Split

    def __str__(self) -> str:
        return "\n".join([str(self.split), *(f"sample {i}: {sample}" for i, sample in enumerate(self.samples))])
