"""Histogram and TextCounts: one count per bin or text."""

from __future__ import annotations

from typing import final

import numpy as np

from vime_metrics._histogram import Histogram, TextCounts
from vime_metrics._numbers import Array
from vime_metrics._reduction.blocks._block import Block, Mine


@final
class HistogramBlock(Block[Histogram]):
    """One histogram: 8 bytes per bin."""

    def __init__(self, key: str, copies: int, edges: tuple[float, ...]) -> None:
        super().__init__((key,), (copies,))
        self.first_size = len(edges) + 1
        self._names = Histogram(edges).report_names(key)

    @property
    def names(self) -> tuple[str, ...]:
        """One per bin."""
        return self._names

    def write_first(self, mine: Mine[Histogram], out: Array) -> None:
        """Counts by bin."""
        for metric in mine.metrics:
            out[:] = metric.counts

    def check(self, first: Array) -> None:
        """Copies divide the number of values."""
        self._require_whole(first.sum(keepdims=True))

    def finish(self, first: Array, peaks: Array, second: Array) -> Array:
        """Counts over the copies."""
        return first / self.copies


@final
class TextCountsBlock(Block[TextCounts]):
    """One table of texts, the union over ranks: 8 bytes per text."""

    def __init__(self, key: str, copies: int, texts: tuple[str, ...]) -> None:
        super().__init__((key,), (copies,))
        self.first_size = len(texts)
        self._position = {text: index for index, text in enumerate(texts)}

    @property
    def names(self) -> tuple[str, ...]:
        """One per text."""
        return tuple(f"{self.keys[0]}/{text}" for text in self._position)

    def write_first(self, mine: Mine[TextCounts], out: Array) -> None:
        """Counts by text."""
        for metric in mine.metrics:
            for text, number in dict(metric.counts).items():
                out[self._position[text]] = number

    def check(self, first: Array) -> None:
        """Copies divide the number of texts."""
        self._require_whole(np.sum(first, keepdims=True))

    def finish(self, first: Array, peaks: Array, second: Array) -> Array:
        """Counts over the copies."""
        return first / self.copies
