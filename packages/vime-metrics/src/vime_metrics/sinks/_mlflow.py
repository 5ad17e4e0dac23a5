"""MLflow; needs the `mlflow` extra unless a client is handed in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Protocol, Self

from vime_metrics._errors import SinkError
from vime_metrics.sinks._extra import require

_FORBIDDEN: Final = re.compile(r"[^\w.\-/ ]")


class MlflowClient(Protocol):
    """What of the `mlflow` module is used."""

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        """Keep numbers in the active run."""

    def end_run(self) -> None:
        """End the active run."""


class MlflowSink:
    """Logs to the active run of `client`, the mlflow module; `failures` are its errors that mean a lost write."""

    def __init__(self, client: MlflowClient, failures: tuple[type[Exception], ...] = (OSError,)) -> None:
        self._client = client
        self._failures = failures

    @classmethod
    def open(cls, *, experiment: str, run_name: str | None = None, tracking_uri: str | None = None) -> Self:
        """Start a run of `experiment`; the tracking URI is MLflow's own default unless given."""
        mlflow = require("mlflow", "mlflow")
        failures = (OSError, mlflow.exceptions.MlflowException)
        try:
            if tracking_uri is not None:
                mlflow.set_tracking_uri(tracking_uri)
            mlflow.set_experiment(experiment)
            mlflow.start_run(run_name=run_name)
        except failures as error:
            raise SinkError(f"MlflowSink cannot start a run of experiment {experiment!r}: {error}.") from error
        return cls(mlflow, failures)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Log all values of `step` at once; what MLflow allows in no name, such as `@`, becomes `_`."""
        try:
            self._client.log_metrics({_FORBIDDEN.sub("_", name): value for name, value in values.items()}, step=step)
        except self._failures as error:
            raise SinkError(f"MlflowSink cannot write step {step}: {error}.") from error

    def close(self) -> None:
        """End the run."""
        self._client.end_run()
