"""Which rollouts train in which optimizer step.

Laws
- Rollouts keep the order in which they first appear; a step holds consecutive rollouts, whole (S4).
- Only `remainder="drop"` leaves rollouts out, and they are returned; only "spread" makes steps larger than asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Literal, TypeAlias

from vime_schedule._errors import ScheduleError, check_positive

Remainder: TypeAlias = Literal["step", "spread", "drop", "error"]


def step_sizes(num_rollouts: int, global_batch_size: int | Sequence[int], remainder: Remainder) -> list[int]:
    """Rollouts of every step; what they do not add up to is dropped.

    >>> [step_sizes(10, 4, remainder) for remainder in ("step", "spread", "drop")]
    [[4, 4, 2], [5, 5], [4, 4]]
    """
    if not isinstance(global_batch_size, int):
        return _listed_sizes(num_rollouts, global_batch_size)
    check_positive("global_batch_size", global_batch_size, "counts rollouts per step")
    full, rest = divmod(num_rollouts, global_batch_size)
    if rest == 0:
        return [global_batch_size] * full
    if remainder == "error":
        raise ScheduleError(
            f"{num_rollouts} rollouts leave {rest} beyond {full} full steps of global_batch_size={global_batch_size}: "
            "choose a size that divides them, or remainder='step', 'spread' or 'drop'."
        )
    if remainder == "drop":
        if full == 0:
            raise ScheduleError(
                f"{num_rollouts} rollouts are fewer than global_batch_size={global_batch_size}, so remainder='drop' "
                "leaves nothing to train: lower `global_batch_size` or choose remainder='step'."
            )
        return [global_batch_size] * full
    if remainder == "step" or full == 0:
        return [global_batch_size] * full + [rest]
    more, extra = divmod(rest, full)
    return [global_batch_size + more + (step < extra) for step in range(full)]


def _listed_sizes(num_rollouts: int, sizes: Sequence[int]) -> list[int]:
    for step, size in enumerate(sizes):
        check_positive(f"global_batch_size[{step}]", size, "counts rollouts per step")
    if sum(sizes) != num_rollouts:
        raise ScheduleError(
            f"global_batch_size={list(sizes)} adds up to {sum(sizes)} but there are {num_rollouts} rollouts: "
            "give step sizes that add up, or one whole number."
        )
    return list(sizes)


def cut_steps(
    positions: Sequence[int],
    rollouts: Sequence[int] | None,
    global_batch_size: int | Sequence[int],
    remainder: Remainder,
) -> tuple[Sequence[Sequence[int]], list[int], Sequence[int]]:
    """Cut positions into steps of whole rollouts: the steps, the rollouts of each, and the positions left out.

    `rollouts` numbers the rollout of every position; None: each sample is its own.
    """
    if rollouts is None:
        sizes = step_sizes(len(positions), global_batch_size, remainder)
        ends = list(accumulate(sizes))
        steps = [positions[end - size : end] for end, size in zip(ends, sizes, strict=True)]
        return steps, sizes, positions[ends[-1] :]
    members: dict[int, list[int]] = {}
    for position in positions:
        members.setdefault(rollouts[position], []).append(position)
    rollout_steps, sizes, left_out = cut_steps(list(members), None, global_batch_size, remainder)
    gathered = [[position for rollout in step for position in members[rollout]] for step in (*rollout_steps, left_out)]
    return gathered[:-1], sizes, gathered[-1]
