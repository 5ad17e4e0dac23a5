"""Weights & Biases; needs the `wandb` extra unless a run is handed in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, Self

from vime_metrics._errors import SinkError
from vime_metrics.sinks._extra import require


class WandbRun(Protocol):
    """What of a `wandb.Run` is used."""

    def log(self, data: dict[str, float], step: int) -> None:
        """Keep numbers."""

    def finish(self) -> None:
        """Upload and end."""


class WandbSink:
    """Logs to `run`, as `wandb.init` returns it; `failures` are the errors of it that mean a lost write."""

    def __init__(self, run: WandbRun, failures: tuple[type[Exception], ...] = (OSError,)) -> None:
        self._run = run
        self._failures = failures

    @classmethod
    def open(cls, *, project: str, name: str | None = None, config: Mapping[str, object] | None = None) -> Self:
        """Start a run; what else wandb needs to know it takes from its environment variables."""
        wandb = require("wandb", "wandb")
        try:
            run = wandb.init(project=project, name=name, config=dict(config or {}))
        except (OSError, wandb.errors.Error) as error:
            raise SinkError(f"WandbSink cannot start a run of project {project!r}: {error}.") from error
        return cls(run, (OSError, wandb.errors.Error))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Log all values of `step` at once."""
        try:
            self._run.log(dict(values), step=step)
        except self._failures as error:
            raise SinkError(f"WandbSink cannot write step {step}: {error}.") from error

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()
