"""Costs that depend on what shares a micro-batch, e.g. samples that share a prefix.

Laws
- A micro-batch costs the sum of its families, and a family never costs less for being split.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass


class SetCost(ABC):
    """The cost of a micro-batch as a whole; pass one as `cost` to `build_dp_schedule`.

    The planner keeps families together where that pays, and states the true cost of every micro-batch.
    """

    @abstractmethod
    def __call__(self, length: int) -> float:
        """The cost of a sample of `length` tokens that shares nothing."""

    @abstractmethod
    def family(self, position: int) -> Hashable:
        """What the sample at `position` shares; samples of equal families are cheaper together."""

    @abstractmethod
    def of_micro_batch(self, positions: Sequence[int]) -> float:
        """The cost of a micro-batch that holds the samples at `positions`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPrefixCost(SetCost):
    """Samples of one prompt that compute their common prefix once per micro-batch.

    Args:
        cost: cost of a sample by its length.
        total_lengths: tokens of every sample, as planned.
        prompt_ids: the prompt of every sample.
        prefix_lengths: tokens of every sample that it shares with its prompt; equal within a prompt.

    >>> shared = SharedPrefixCost(
    ...     cost=float, total_lengths=(9, 8, 5), prompt_ids=("a", "a", "b"), prefix_lengths=(4, 4, 2)
    ... )
    >>> shared.of_micro_batch([0, 1, 2])   # 9 + 8 + 5, less 4 that is computed once
    18.0
    """

    cost: Callable[[int], float]
    total_lengths: Sequence[int]
    prompt_ids: Sequence[Hashable]
    prefix_lengths: Sequence[int]

    def __call__(self, length: int) -> float:
        """The cost of a sample alone."""
        return self.cost(length)

    def family(self, position: int) -> Hashable:
        """Its prompt."""
        return self.prompt_ids[position]

    def of_micro_batch(self, positions: Sequence[int]) -> float:
        """The samples, less every repeated prefix."""
        total = 0.0
        seen: Counter[Hashable] = Counter()
        for position in positions:
            total += self.cost(self.total_lengths[position])
            if seen[self.prompt_ids[position]]:
                total -= self.cost(self.prefix_lengths[position])
            seen[self.prompt_ids[position]] += 1
        return total
