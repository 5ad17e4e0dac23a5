"""What is reported about one iteration's rollouts and their plan. Every value is one of `vime_metrics` and adds.

Always true: rewards and lengths are of all rollouts that were generated, also of those that no step trains on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vime_metrics import Count, Max, Mean, Min, Quantiles
from vime_train.rollout._groups import by_group

if TYPE_CHECKING:
    from vime_metrics import Metric
    from vime_schedule import Schedule
    from vime_train.rollout._samples import Rollout


def batch_metrics(
    rollouts: Sequence[Rollout], dropped: Sequence[Rollout], schedule: Schedule | None
) -> dict[str, Metric]:
    """Rewards, lengths, groups and plan figures of one iteration."""
    samples = [sample for rollout in rollouts for sample in rollout.samples]
    lengths = [sample.response_length for sample in samples]
    first = [rollout.samples[0].response_length for rollout in rollouts]
    metrics: dict[str, Metric] = {
        "rollout/reward": Mean.of([rollout.reward for rollout in rollouts]),
        "rollout/rollouts": Count(len(rollouts)),
        "rollout/samples": Count(len(samples)),
        "rollout/samples_per_rollout": Mean(len(samples), len(rollouts)),
        "rollout/truncated": Mean.of([float(sample.status == "truncated") for sample in samples]),
        "rollout/zero_variance_groups": Count(len(by_group(dropped))),
        "rollout/trained_share": Mean(len(rollouts) - len(dropped), len(rollouts)),
        "response/length": Quantiles.of(lengths),
        "response/mean_length": Mean.of(lengths),
        "response/longest": Max.of(lengths),
        "response/shortest": Min.of(lengths),
        "response/first_attempt_length": Mean.of(first),
    }
    for name in sorted({name for rollout in rollouts for name in rollout.reward_parts}):
        judged = [rollout.reward_parts[name] for rollout in rollouts if name in rollout.reward_parts]
        metrics[f"reward/{name}"] = Mean.of(judged)
    if schedule is not None:
        total = schedule.report().total
        metrics |= {
            "plan/steps": Count(len(schedule.steps)),
            "plan/imbalance": Max(total.imbalance),
            "plan/lockstep": Max(total.lockstep),
            "plan/padding": Max(total.padding_fraction),
            "plan/fillers": Count(total.fillers),
        }
    return metrics
