"""What a run says while it runs: a live line on a terminal, plain lines elsewhere.

Always true: everything goes to the error stream, so that the output of a command stays clean; nothing is said twice.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Protocol, TextIO

SHOWN = {
    "supervised/loss": "loss",
    "supervised/grad_norm": "grad norm",
    "train/loss": "loss",
    "rollout/reward": "reward",
    "eval/accuracy": "accuracy",
    "response/mean_length": "length",
    "check/max_log_prob_difference": "log-prob diff",
    "time/step": "seconds",
}


class Progress(Protocol):
    """What a controller tells about itself."""

    def say(self, text: str) -> None:
        """One line about what is going on now."""
        ...

    def advance(self, phase: str, done: int, total: int, values: Mapping[str, float]) -> None:
        """`done` of `total` steps of a phase are over, with these figures of the last one."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was."""
        ...


def figures(values: Mapping[str, float]) -> list[str]:
    """The figures that are shown while a run goes on, each with its name.

    >>> figures({"rollout/reward": 0.5, "train/lr": 1.0, "time/step": 2.25})
    ['reward 0.500', 'seconds 2.250']
    """
    shown = [(label, values[name]) for name, label in SHOWN.items() if name in values]
    return [f"{label} {value:.1e}" if 0 < abs(value) < 1e-3 else f"{label} {value:.3f}" for label, value in shown]


def describe(values: Mapping[str, float]) -> str:
    """The figures that a progress line shows.

    >>> describe({"rollout/reward": 0.5, "train/grad_norm": 1.0})
    'reward 0.500'
    """
    return "  ".join(figures(values))


class PlainProgress:
    """One line per message; for a phase, one line every tenth of it."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._start = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line with the seconds since the start."""
        print(f"[{time.monotonic() - self._start:6.1f} s] {text}", file=self._stream, flush=True)

    def advance(self, phase: str, done: int, total: int, values: Mapping[str, float]) -> None:
        """Print a line every tenth of the phase."""
        if done * 10 // total > (done - 1) * 10 // total:
            self.say(f"{phase} {done}/{total}  {describe(values)}".rstrip())

    def close(self) -> None:
        """Nothing to do."""
