"""Size one optimizer step from the rollouts at hand.

Laws
- The unit is the rollout, as in `build_dp_schedule(global_batch_size=...)`.
- The answer is never more rollouts than exist, and never 0.
"""

from __future__ import annotations

from vime_schedule._errors import ScheduleError, check_positive


def compute_dynamic_global_batch_size(num_rollouts: int, dp: int, *, num_steps: int = 1) -> int:
    """The largest multiple of `dp` rollouts that `num_steps` equal steps can each have.

    Args:
        num_rollouts: rollouts at hand, each of one or more samples.
        dp: data-parallel ranks.
        num_steps: optimizer steps to train on them.

    Raises:
        ScheduleError: if a step would have fewer rollouts than ranks.

    >>> compute_dynamic_global_batch_size(35, dp=8)
    32
    """
    check_positive("num_rollouts", num_rollouts, "counts rollouts")
    check_positive("dp", dp, "counts ranks")
    check_positive("num_steps", num_steps, "counts optimizer steps")
    per_step = num_rollouts // num_steps
    if per_step < dp:
        raise ScheduleError(
            f"{num_rollouts} rollouts over {num_steps} steps are {per_step} per step, fewer than dp={dp}: give at "
            f"least {dp * num_steps} rollouts, or plan what there is with build_dp_schedule(..., shortage='fill')."
        )
    return per_step // dp * dp
