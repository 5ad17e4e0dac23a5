"""Metrics of reinforcement learning from rollouts."""

from vime_metrics.rl._groups import zero_variance
from vime_metrics.rl._pass_at_k import pass_at_k, pass_rates
from vime_metrics.rl._rollout import by_source, rollout_statistics, summary
from vime_metrics.rl._steps import StepCounter
from vime_metrics.rl._train_step import train_step_report

__all__ = [
    "StepCounter",
    "by_source",
    "pass_at_k",
    "pass_rates",
    "rollout_statistics",
    "summary",
    "train_step_report",
    "zero_variance",
]
