"""Counts by bin of numbers, and counts by text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Self, final

import numpy as np

from vime_metrics._errors import MetricError
from vime_metrics._metric import Metric
from vime_metrics._numbers import Values, as_array, as_count, split_finite


@final
@dataclass(frozen=True, slots=True)
class Histogram(Metric):
    """Counts of values in bins that are chosen beforehand, each closed below and open above.

    `edges`, ascending, of length n give n + 1 bins: below the first, between neighbours, from the last one up.
    `value` is the number of values. It reports one count per bin, named `name/lo..hi`.

    >>> Histogram.of([1, 5, 5, 12], edges=[0, 5, 10]).report("length")
    {'length/-inf..0': 0.0, 'length/0..5': 1.0, 'length/5..10': 2.0, 'length/10..inf': 1.0}
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...] = ()
    nonfinite: int = 0

    def __post_init__(self) -> None:
        edges = tuple(float(edge) for edge in self.edges)
        if not edges or not all(map(math.isfinite, edges)) or any(a >= b for a, b in pairwise(edges)):
            raise MetricError(f"Histogram.edges must be finite and strictly ascending, given {edges}.")
        counts = tuple(as_count(count, "Histogram.counts") for count in self.counts) or (0,) * (len(edges) + 1)
        if len(counts) != len(edges) + 1:
            raise MetricError(
                f"Histogram has {len(edges)} edges and so {len(edges) + 1} bins, given {len(counts)} counts."
            )
        object.__setattr__(self, "edges", edges)
        object.__setattr__(self, "counts", counts)

    @classmethod
    def of(cls, values: Values, edges: Iterable[float]) -> Self:
        """Histogram of `values`, any shape."""
        finite, nonfinite = split_finite(as_array(values, "Histogram values"))
        none = cls(tuple(edges))
        bins = np.searchsorted(np.array(none.edges), finite, side="right")
        return cls(none.edges, tuple(np.bincount(bins, minlength=len(none.counts)).tolist()), nonfinite)

    def __add__(self, other: Self) -> Self:
        self._require_same_kind(other)
        if self.edges != other.edges:
            raise MetricError(
                f"cannot add Histograms with edges {self.edges} and {other.edges}: choose one set of edges."
            )
        counts = tuple(a + b for a, b in zip(self.counts, other.counts, strict=True))
        return type(self)(self.edges, counts, self.nonfinite + other.nonfinite)

    @property
    def empty(self) -> Self:
        """No values, the same edges."""
        return type(self)(self.edges)

    @property
    def finite_value(self) -> float:
        """The number of values in all bins."""
        return float(sum(self.counts))

    def report(self, name: str) -> dict[str, float]:
        """One count per bin."""
        return dict(zip(self.report_names(name), map(float, self.counts), strict=True))

    def report_names(self, name: str) -> tuple[str, ...]:
        """The keys that `report` gives."""
        return tuple(f"{name}/{low:g}..{high:g}" for low, high in pairwise((-math.inf, *self.edges, math.inf)))


@final
@dataclass(frozen=True, slots=True)
class TextCounts(Metric):
    """How often each text occurred: finish reasons, sources, error categories. `value` is the number of all.

    >>> (TextCounts.of(["stop", "length", "stop"]) + TextCounts({"abort": 1})).report("finish")
    {'finish/abort': 1.0, 'finish/length': 1.0, 'finish/stop': 2.0}
    """

    counts: Mapping[str, int] | tuple[tuple[str, int], ...] = ()
    nonfinite: int = 0

    def __post_init__(self) -> None:
        counts = dict(self.counts)
        for text in counts:
            if not isinstance(text, str):
                raise MetricError(f"TextCounts counts texts, given {text!r}: convert it with str() or use a Histogram.")
        pairs = sorted(counts.items())
        object.__setattr__(self, "counts", tuple((text, as_count(n, f"TextCounts[{text!r}]")) for text, n in pairs))

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        """Counts of `texts`."""
        return cls(Counter(texts))

    def __add__(self, other: Self) -> Self:
        self._require_same_kind(other)
        return type(self)(Counter(dict(self.counts)) + Counter(dict(other.counts)), self.nonfinite + other.nonfinite)

    @property
    def finite_value(self) -> float:
        """How many texts were counted."""
        return float(sum(dict(self.counts).values()))

    def share(self, text: str) -> float:
        """The share of `text` among all; NaN where nothing was counted."""
        return dict(self.counts).get(text, 0) / self.value if self.value else math.nan

    def report(self, name: str) -> dict[str, float]:
        """One count per text."""
        return {f"{name}/{text}": float(number) for text, number in dict(self.counts).items()}
