"""pass@k over groups of any size.

Source: Chen et al., "Evaluating Large Language Models Trained on Code" (2021): with n samples of which c are correct,
1 - C(n - c, k) / C(n, k) is the unbiased estimate of the chance that one of k samples is correct.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cache
from math import comb

import numpy as np

from vime_metrics._errors import MetricError
from vime_metrics._numbers import Values, as_array
from vime_metrics._sums import Mean


@cache
def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Unbiased pass@k of one group; integers throughout, so exact to the last bit for any size.

    >>> pass_at_k(4, 1, 1), pass_at_k(4, 1, 2), pass_at_k(4, 3, 2)
    (0.25, 0.5, 1.0)
    """
    if not 0 <= num_correct <= num_samples:
        raise MetricError(f"pass_at_k was given {num_correct} correct of {num_samples} samples.")
    if not 1 <= k <= num_samples:
        raise MetricError(f"pass@{k} cannot be estimated from {num_samples} samples: choose k from 1 to them.")
    total = comb(num_samples, k)
    return (total - comb(num_samples - num_correct, k)) / total


def pass_rates(correct: Values, group_ids: Sequence[Hashable], ks: Iterable[int] | None = None) -> dict[str, Mean]:
    """`pass@k` as a mean over the groups that have at least k samples; smaller groups say nothing about it.

    Args:
        correct: whether each sample is correct, shape [samples].
        group_ids: the prompt that each sample answers; a group has to be whole on one rank.
        ks: 1, 2, 4, ... up to the largest group, unless given.

    >>> rates = pass_rates([1, 0, 0, 0, 1, 1], ["a", "a", "a", "a", "b", "b"])
    >>> {name: (mean.value, mean.weight) for name, mean in rates.items()}
    {'pass@1': (0.625, 2.0), 'pass@2': (0.75, 2.0), 'pass@4': (1.0, 1.0)}
    """
    groups = grouped(as_array(correct, "pass_rates correct"), group_ids)
    sizes = [(flags.size, int(np.count_nonzero(flags))) for flags in groups.values()]
    asked = _powers_of_two(max((n for n, _ in sizes), default=0)) if ks is None else sorted(set(ks))
    return {f"pass@{k}": Mean.of([pass_at_k(n, c, k) for n, c in sizes if n >= k]) for k in asked}


def grouped(values: np.ndarray, group_ids: Sequence[Hashable]) -> Mapping[Hashable, np.ndarray]:
    """The values of each group, groups in order of first appearance."""
    if len(group_ids) != values.size:
        raise MetricError(f"{values.size} values but {len(group_ids)} group ids: give one id per value.")
    positions: dict[Hashable, list[int]] = defaultdict(list)
    for at, group in enumerate(group_ids):
        positions[group].append(at)
    return {group: values[at] for group, at in positions.items()}


def _powers_of_two(largest: int) -> list[int]:
    return [1 << power for power in range(largest.bit_length())]
