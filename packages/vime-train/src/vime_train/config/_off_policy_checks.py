"""Launch checks of generation one step ahead of training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vime_train.config._run_config import RunConfig


def off_policy_problems(config: RunConfig) -> Iterator[str]:
    """One sentence per way in which `rollout.one_step_off_policy` cannot work, or would do nothing."""
    if not config.rollout.one_step_off_policy:
        return
    key = "rollout.one_step_off_policy = true"
    if config.debug.load_rollouts is not None:
        yield f"{key} with debug.load_rollouts: nothing is generated, so nothing can be generated ahead. Remove one."
    if config.debug.rollout_only:
        yield f"{key} with debug.rollout_only = true: nothing is trained meanwhile. Remove one of them."
    section = config.algorithm
    if section.loss != "sft" and section.old_log_probs == "recompute" and section.correction.kind == "none":
        yield (
            f"{key} with algorithm.old_log_probs = 'recompute': ratios would begin at 1, as if the newest weights had "
            "sampled the answers, and older ones did. Use algorithm.old_log_probs = 'rollout' (at "
            "rollout.temperature = 1), or set algorithm.correction.kind, which weighs the newest weights' "
            "probabilities against those of the engine that sampled."
        )
