"""What a run came to: reward and accuracy at both ends, where the time went, and how well the plan fitted.

Always true: the phases and "other" add up to the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vime_train.report._records import Record, series

PHASES = ("generate", "score", "plan", "train", "sync", "check", "evaluate", "save")


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Figures of a whole run; None where the run has none.

    Attributes:
        iterations: how many were run.
        reward: mean reward of the first and of the last iteration.
        accuracy: greedy accuracy before the first and after the last iteration.
        length: mean response length in tokens of the first and of the last iteration.
        seconds: mean seconds per iteration of each phase, and of the whole step.
        hidden: mean seconds per iteration of generation beside other phases, which is in none of them.
        orchestration: mean seconds per iteration in which neither a trainer nor an engine worked.
        imbalance: mean of max rank cost / mean rank cost.
        lockstep: mean of the slowest micro-batches' sum / mean rank cost.
        padding: mean part of the tokens held that is padding.
        max_log_prob_difference: largest difference between engines and trainers over all syncs.
    """

    iterations: int
    reward: tuple[float, float] | None
    accuracy: tuple[float, float] | None
    length: tuple[float, float] | None
    seconds: dict[str, float]
    hidden: float | None
    orchestration: float | None
    imbalance: float | None
    lockstep: float | None
    padding: float | None
    max_log_prob_difference: float | None


def summarise(records: Sequence[Record]) -> Summary:
    """The summary of a run's records."""
    trained = [record for record in records if record.iteration > 0]
    differences = series(records, "check/max_log_prob_difference")[1]
    return Summary(
        iterations=len(trained),
        reward=_ends(trained, "rollout/reward"),
        accuracy=_ends(records, "eval/accuracy"),
        length=_ends(trained, "response/mean_length"),
        seconds=_seconds(trained),
        hidden=_hidden(trained),
        orchestration=_mean(trained, "time/orchestration"),
        imbalance=_mean(trained, "plan/imbalance"),
        lockstep=_mean(trained, "plan/lockstep"),
        padding=_mean(trained, "plan/padding"),
        max_log_prob_difference=max(differences, default=None),
    )


def _ends(records: Sequence[Record], name: str) -> tuple[float, float] | None:
    values = series(records, name)[1]
    return (values[0], values[-1]) if values else None


def _mean(records: Sequence[Record], name: str) -> float | None:
    values = series(records, name)[1]
    return sum(values) / len(values) if values else None


def _hidden(trained: Sequence[Record]) -> float | None:
    values = series(trained, "time/generate_hidden")[1]
    return sum(values) / len(trained) if values else None


def _seconds(trained: Sequence[Record]) -> dict[str, float]:
    if not trained:
        return {}
    count = len(trained)
    phases = {name: sum(series(trained, f"time/{name}")[1]) / count for name in PHASES}
    whole = sum(series(trained, "time/step")[1]) / count
    used = {name: value for name, value in phases.items() if value > 0}
    return {**used, "other": max(0.0, whole - sum(used.values())), "step": whole}
