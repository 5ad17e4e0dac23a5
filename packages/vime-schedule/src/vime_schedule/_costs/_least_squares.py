"""Least squares with coefficients that may not be negative, for a handful of columns, exact and without numpy.

Laws
- The result minimises the squared error over all coefficient vectors without a negative entry.
- The normal equations are solved in rational arithmetic: collinear columns are recognised exactly, with no tolerance.
- Of two fits with the same error the one with fewer columns wins, then the one whose columns come first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations


def non_negative_fit(columns: Sequence[Sequence[int]], target: Sequence[float]) -> list[float]:
    """Return the coefficient of each column.

    The constrained optimum is the unconstrained optimum of the columns it uses, so trying every subset finds it.

    >>> non_negative_fit([[1, 1, 1], [1, 2, 3]], [3.0, 5.0, 7.0])
    [1.0, 2.0]
    """
    gram = [[sum(map(int.__mul__, a, b)) for b in columns] for a in columns]
    moments = [Fraction(math.fsum(value * y for value, y in zip(column, target, strict=True))) for column in columns]
    best, gained = [Fraction(0)] * len(columns), Fraction(0)
    for size in range(1, len(columns) + 1):
        for chosen in combinations(range(len(columns)), size):
            solved = _solve([[gram[i][j] for j in chosen] for i in chosen], [moments[i] for i in chosen])
            if solved is None or min(solved) < 0:
                continue
            gain = sum((x * moments[i] for x, i in zip(solved, chosen, strict=True)), Fraction(0))
            if gain > gained:
                by_column = dict(zip(chosen, solved, strict=True))
                best, gained = [by_column.get(i, Fraction(0)) for i in range(len(columns))], gain
    return [float(x) for x in best]


def _solve(matrix: list[list[int]], right: list[Fraction]) -> list[Fraction] | None:
    """Solve a small square system by Gauss-Jordan elimination; None if it is singular."""
    size = len(right)
    rows = [[*map(Fraction, row), value] for row, value in zip(matrix, right, strict=True)]
    for i in range(size):
        pivot = next((r for r in range(i, size) if rows[r][i]), None)
        if pivot is None:
            return None
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for r in range(size):
            if r != i and rows[r][i]:
                factor = rows[r][i]
                rows[r] = [value - factor * lead for value, lead in zip(rows[r], rows[i], strict=True)]
    return [row[size] for row in rows]
