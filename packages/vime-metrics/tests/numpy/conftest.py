"""Profiles of generated tests, and the slow, obvious answers."""

from __future__ import annotations

import math
import os
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("quick", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("VIME_HYPOTHESIS_PROFILE", "quick"))


class Oracle:
    """Answers from the pooled values, one loop each, in exact fractions where sums are involved."""

    @staticmethod
    def sum(values):
        return float(sum(map(Fraction, values)))

    @staticmethod
    def mean(values, weights=None):
        weights = [1] * len(values) if weights is None else weights
        whole = sum(map(Fraction, weights))
        pairs = zip(values, weights, strict=True)
        return float(sum(Fraction(v) * Fraction(w) for v, w in pairs) / whole) if whole else math.nan

    @staticmethod
    def std(values, unbiased=False):
        if len(values) - unbiased <= 0:
            return math.nan
        exact = [Fraction(value) for value in values]
        mean = sum(exact) / len(exact)
        return math.sqrt(sum((value - mean) ** 2 for value in exact) / (len(exact) - unbiased))

    @staticmethod
    def quantile(values, q):
        if not values:
            return math.nan
        ordered = sorted(values)
        position = q * (len(ordered) - 1)
        below = math.floor(position)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (ordered[above] - ordered[below]) * (position - below)

    @staticmethod
    def last(pairs):
        if not pairs:
            return math.nan
        newest = max(step for _, step in pairs)
        return Oracle.mean([value for value, step in pairs if step == newest])


@pytest.fixture(scope="session")
def oracle():
    return Oracle
