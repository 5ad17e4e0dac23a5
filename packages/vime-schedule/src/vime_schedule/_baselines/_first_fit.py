"""First-fit packing, in arrival order or longest first, with micro-batches dealt to the ranks in turn.

Johnson, "Near-optimal bin packing algorithms", MIT, 1973. A tournament tree over the free room of the bins finds the
first bin with enough room in O(log bins), so a step of n samples takes O(n log n).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from vime_schedule._baselines._problem import Ranks, StepProblem
from vime_schedule._errors import ScheduleError


def arrival_first_fit(problem: StepProblem) -> Ranks:
    """Pack samples as they arrive; micro-batch k runs on rank k % dp."""
    return _pack_and_deal(problem, problem.positions)


def first_fit_decreasing(problem: StepProblem) -> Ranks:
    """Pack the longest samples first; micro-batch k runs on rank k % dp."""
    return _pack_and_deal(problem, sorted(problem.positions, key=lambda p: -problem.shares[p]))


def _pack_and_deal(problem: StepProblem, order: Sequence[int]) -> Ranks:
    bins = _first_fit(problem, order)
    dp = problem.layout.dp
    target = problem.layout.next_legal(-(-len(bins) // dp)) * dp
    _split_until(bins, target, problem.shares)
    return [bins[rank::dp] for rank in range(dp)]


def _first_fit(problem: StepProblem, order: Sequence[int]) -> list[list[int]]:
    """Put every sample into the first bin that still has room; one that exceeds the capacity gets its own."""
    leaves = 1 << max(1, (len(order) - 1).bit_length())
    room = [problem.capacity] * (2 * leaves)  # room[i] is the most room below node i; bins are the leaves
    bins: list[list[int]] = [[] for _ in order]
    for position in order:
        share = min(problem.shares[position], problem.capacity)
        node = 1
        while node < leaves:
            node = 2 * node if room[2 * node] >= share else 2 * node + 1
        bins[node - leaves].append(position)
        room[node] -= share
        while node > 1:
            node //= 2
            room[node] = max(room[2 * node], room[2 * node + 1])
    return [members for members in bins if members]


def _split_until(bins: list[list[int]], target: int, shares: Sequence[int]) -> None:
    """Halve the fullest bin of two or more samples until there are `target`."""
    heap = [(-sum(shares[p] for p in members), index) for index, members in enumerate(bins) if len(members) > 1]
    heapify(heap)
    while len(bins) < target:
        if not heap:
            raise ScheduleError(
                f"{len(bins)} samples cannot fill {target} micro-batches: this baseline knows no fillers."
            )
        _, index = heappop(heap)
        first: list[int] = []
        second: list[int] = []
        left = right = 0
        for position in sorted(bins[index], key=lambda p: -shares[p]):
            if left <= right:
                first.append(position)
                left += shares[position]
            else:
                second.append(position)
                right += shares[position]
        bins[index] = first
        bins.append(second)
        for load, at in ((left, index), (right, len(bins) - 1)):
            if len(bins[at]) > 1:
                heappush(heap, (-load, at))
