"""Groups whose samples all earned the same reward: they give no advantage, hence no gradient, under group baselines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from vime_metrics._histogram import TextCounts
from vime_metrics._metric import Metric
from vime_metrics._numbers import Values, as_array
from vime_metrics._sums import Mean
from vime_metrics.rl._pass_at_k import grouped


def zero_variance(rewards: Values, group_ids: Sequence[Hashable]) -> dict[str, Metric]:
    """How many groups have equal rewards, and at which reward (to one decimal); groups of one sample do not count.

    Args:
        rewards: one per sample, shape [samples].
        group_ids: the prompt that each sample answers; a group has to be whole on one rank.

    >>> found = zero_variance([1, 1, 0, 1, 0, 0, 1], ["a", "a", "b", "b", "c", "c", "d"])
    >>> found["zero_variance/ratio"], found["zero_variance/reward"]
    (Mean(total=2.0, weight=3.0, nonfinite=0), TextCounts(counts=(('0.0', 1), ('1.0', 1)), nonfinite=0))
    """
    groups = [rewards for rewards in grouped(as_array(rewards, "rewards"), group_ids).values() if rewards.size > 1]
    flat = [group for group in groups if group.min() == group.max()]
    return {
        "zero_variance/ratio": Mean(len(flat), len(groups)),
        "zero_variance/reward": TextCounts(Counter(f"{group[0] + 0.0:.1f}" for group in flat)),
    }
