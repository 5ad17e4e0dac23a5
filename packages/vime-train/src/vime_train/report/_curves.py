"""A picture of a run: reward and accuracy, lengths, log-prob difference, and where the time goes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vime_train.report._records import Record, series
from vime_train.report._summary import PHASES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREEN, GREY = "#2f6fb3", "#d9730d", "#2e8b57", "#8a8f98"
_COLOURS = (BLUE, "#7a6f5d", GREEN, ORANGE, "#8e63b0", "#c2454a", "#5aa5a0", "#b0a030", GREY)


def write_curves(
    records: Sequence[Record], path: str | Path, *, title: str, split: str, limit: float | None = None
) -> None:
    """Draw the curves of a run as a PNG.

    Args:
        records: the run's records.
        path: file to write.
        title: what stands above.
        split: which problems the accuracy is of.
        limit: the largest log-prob difference that the run goes on with.
    """
    import matplotlib as mpl

    mpl.use("Agg")  # no display; nothing of ours draws on a screen
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(11, 7), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
    axes: Any = figure.subplots(2, 2)
    _rewards(axes[0][0], records, split)
    _lengths(axes[0][1], records)
    _differences(axes[1][0], records, limit)
    _times(axes[1][1], records)
    for one in axes.flat:
        one.set_xlabel("iteration")
        one.xaxis.set_major_locator(MaxNLocator(integer=True))
        one.grid(alpha=0.25)
        one.spines[["top", "right"]].set_visible(False)
        if one.get_legend_handles_labels()[0] and one.get_legend() is None:
            one.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=110)


def _rewards(axes: Axes, records: Sequence[Record], split: str) -> None:
    axes.set_title("Reward and accuracy", loc="left", fontsize=11)
    axes.plot(*series(records, "rollout/reward"), color=BLUE, label="reward of sampled rollouts")
    axes.plot(*series(records, "eval/accuracy"), color=ORANGE, marker="o", label=f"greedy accuracy, {split}")
    values = [value for name in ("rollout/reward", "eval/accuracy") for value in series(records, name)[1]]
    low, high = min([0.0, *values]), max([1.0, *values])
    axes.set_ylim(low - 0.02 * (high - low), high + 0.02 * (high - low))


def _lengths(axes: Axes, records: Sequence[Record]) -> None:
    axes.set_title("Response length", loc="left", fontsize=11)
    iterations, shortest = series(records, "response/shortest")
    longest = series(records, "response/longest")[1]
    axes.fill_between(iterations, shortest, longest, color=BLUE, alpha=0.15, label="shortest to longest")
    axes.plot(*series(records, "response/mean_length"), color=BLUE, label="mean")
    axes.set_ylabel("tokens")
    axes.set_ylim(bottom=0)


def _differences(axes: Axes, records: Sequence[Record], limit: float | None) -> None:
    axes.set_title("Engines against trainers: difference of log-probs", loc="left", fontsize=11)
    axes.set_yscale("log")
    axes.plot(*series(records, "check/max_log_prob_difference"), color=BLUE, label="max over the sampled tokens")
    axes.plot(*series(records, "check/mean_log_prob_difference"), color=GREEN, label="mean")
    if limit is not None:
        axes.axhline(limit, color=GREY, linestyle="--", label="the run stops above")
        axes.set_ylim(top=100 * limit)
    axes.legend(loc="upper right", frameon=False, fontsize=9)


def _times(axes: Axes, records: Sequence[Record]) -> None:
    axes.set_title("Time per iteration", loc="left", fontsize=11)
    trained = [record for record in records if record.iteration > 0]
    iterations = [record.iteration for record in trained]
    below = [0.0] * len(trained)
    for phase, colour in zip((*PHASES, "other"), _COLOURS, strict=True):
        seconds = [_seconds(record, phase, counted) for record, counted in zip(trained, below, strict=True)]
        if sum(seconds) > 0:
            axes.bar(iterations, seconds, bottom=below, width=0.9, color=colour, label=phase)
            below = [low + more for low, more in zip(below, seconds, strict=True)]
    axes.set_ylabel("seconds")
    if any(below):
        axes.set_ylim(0, 1.04 * max(below))  # matplotlib leaves no margin above a bar on which an empty one stands
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9, reverse=True)


def _seconds(record: Record, phase: str, counted: float) -> float:
    """Seconds of a phase; "other" is what is left of the step after the phases that were `counted`."""
    if phase == "other":
        return max(0.0, record.values.get("time/step", 0.0) - counted)
    return record.values.get(f"time/{phase}", 0.0)
