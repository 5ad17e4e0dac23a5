"""Stop a run that learns nothing any more because its gradients are not finite."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from vime_train._errors import RunError
from vime_train.cluster import log_tail

_MODELS = {
    "supervised": ("", "supervised.lr"),
    "policy": ("", "optimizer.lr"),
    "critic": ("critic_", "critic.lr"),
}
"""What its numbers begin with, and the setting of its learning rate."""


class DivergenceError(RunError, RuntimeError):
    """The trainers skipped step after step."""


class DivergenceGuard:
    """Counts the optimizer steps in a row that the trainers skipped.

    Args:
        limit: how many in a row end the run.
        log: the log of trainer rank 0, which names the samples and parameters of every skipped step.
    """

    def __init__(self, limit: int, *, log: Path) -> None:
        self._limit = limit
        self._log = log
        self._in_a_row = 0

    def saw(self, step: Mapping[str, float], *, model: Literal["supervised", "policy", "critic"]) -> None:
        """Look at the numbers of one optimizer step of a model.

        Raises:
            DivergenceError: when `limit` steps in a row were skipped.
        """
        prefix, lr_setting = _MODELS[model]
        self._in_a_row = self._in_a_row + 1 if step[f"{prefix}skipped"] else 0
        if self._in_a_row >= self._limit:
            lr = step[f"{prefix}lr"]
            raise DivergenceError(
                f"{self._in_a_row} optimizer steps in a row were skipped, since their loss or gradients were not "
                f"finite: lower `{lr_setting}` (it was {lr:g}) or look at the samples that the log names. "
                f"The weights are those before the first of them.\n  The end of {self._log}:\n{log_tail(self._log)}"
            )
