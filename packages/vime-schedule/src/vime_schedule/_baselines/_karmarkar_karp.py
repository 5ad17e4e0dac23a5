"""Karmarkar-Karp differencing, over the ranks and then over the micro-batches of each rank.

Karmarkar and Karp, "The differencing method of set partitioning", UC Berkeley, 1982: merge the two partial partitions
whose parts differ most, the largest part of one with the smallest of the other, until one partition is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from vime_schedule._baselines._problem import Ranks, StepProblem
from vime_schedule._errors import ScheduleError

Tree: TypeAlias = "int | tuple[Tree, Tree]"  # samples as leaves
Part: TypeAlias = tuple[float, Tree]  # the sum of a part, and its samples


def two_level_karmarkar_karp(problem: StepProblem) -> Ranks:
    """Split the samples over the ranks by cost, then each rank's over as many micro-batches as the fullest needs."""
    layout = problem.layout
    if len(problem.positions) < layout.dp:
        raise ScheduleError(f"{len(problem.positions)} samples cannot fill {layout.dp} ranks.")
    per_rank = karmarkar_karp(problem.positions, problem.costs, layout.dp)
    tokens = [sum(min(problem.shares[p], problem.capacity) for p in members) for members in per_rank]
    count = layout.next_legal(max(-(-load // problem.capacity) for load in tokens))
    fewest = min(map(len, per_rank))
    if fewest < count:
        raise ScheduleError(f"{fewest} samples of the shortest rank cannot fill {count} micro-batches.")
    return [karmarkar_karp(members, problem.costs, count) for members in per_rank]


def karmarkar_karp(positions: Sequence[int], costs: Sequence[float], parts: int) -> list[list[int]]:
    """Split `positions` into `parts` groups of nearly equal cost, none empty.

    >>> [sorted(group) for group in karmarkar_karp(range(5), [8, 7, 6, 5, 4], 2)]
    [[1, 3, 4], [0, 2]]
    """
    heap: list[tuple[float, int, list[Part]]] = [
        (-costs[position], index, [(costs[position], position)]) for index, position in enumerate(positions)
    ]
    heapify(heap)
    stamp = len(heap)
    while len(heap) > 1:
        _, _, first = heappop(heap)
        _, _, second = heappop(heap)
        merged = _merge(first, second, parts)
        spread = merged[0][0] - (merged[-1][0] if len(merged) == parts else 0.0)
        heappush(heap, (-spread, stamp, merged))
        stamp += 1
    return [_flatten(tree) for _, tree in heap[0][2]]


def _merge(first: list[Part], second: list[Part], parts: int) -> list[Part]:
    """Add two partitions, largest part to smallest; both are sorted and leave out their empty parts."""
    overlap = max(0, len(first) + len(second) - parts)
    kept = first[: len(first) - overlap] + second[: len(second) - overlap]
    shared = zip(first[len(first) - overlap :], reversed(second[len(second) - overlap :]), strict=True)
    joined: list[Part] = [(a[0] + b[0], (a[1], b[1])) for a, b in shared]
    return sorted(kept + joined, key=lambda part: -part[0])


def _flatten(tree: Tree) -> list[int]:
    """Return the leaves of a tree of pairs, which may be deeper than the recursion limit."""
    leaves: list[int] = []
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            stack.extend(node)
        else:
            leaves.append(node)
    return sorted(leaves)
