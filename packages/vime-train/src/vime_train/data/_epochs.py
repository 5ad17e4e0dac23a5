"""The endless order in which a finite set is drawn.

Always true: every epoch holds each index once; the order of an epoch is a pure function of seed and epoch.
"""

from __future__ import annotations

import random
from functools import lru_cache


def epoch_index(position: int, *, size: int, seed: int, shuffle: bool) -> int:
    """Which of `size` items stands at `position` of the endless sequence.

    >>> sorted(epoch_index(position, size=3, seed=0, shuffle=True) for position in range(3, 6))
    [0, 1, 2]
    """
    epoch, place = divmod(position, size)
    return _order(size, seed, epoch)[place] if shuffle else place


@lru_cache(maxsize=4)
def _order(size: int, seed: int, epoch: int) -> list[int]:
    return random.Random(f"epoch-{seed}-{epoch}").sample(range(size), size)
