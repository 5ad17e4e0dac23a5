"""Rollouts for the loop: generated when they are wanted, or one step ahead, while the trainers are busy.

Always true:

- the engines take no weights while they generate, so one version sampled all that a generation adds;
- with `rollout.one_step_off_policy` iteration `k` is sampled while `k - 1` is trained, under weights `k - 2`; the first
  of a run, and the first after a generation that failed, when it is wanted, under weights `k - 1`;
- what was generated ahead is part of a checkpoint, so that a resumed run trains on the same rollouts;
- a generation that fails says so at once, and raises where its rollouts are wanted: what is under way then is trained
  and can be saved first.
"""

from __future__ import annotations

import json
import logging
import math
import time
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import TYPE_CHECKING, Self

from vime_metrics import Sum
from vime_train.report import reported
from vime_train.rollout import Collected, DumpError, load_rollouts, save_rollouts

if TYPE_CHECKING:
    from vime_train.cluster import EnginePool
    from vime_train.rollout import Collector

_FIGURES = "figures.json"
_PATIENCE_SECONDS = 5.0
"""How long a generation may take to notice that its engines are gone."""
_log = logging.getLogger("vime_train")


class Generation:
    """The collector at work, in this thread or in one of its own; `close` ends both.

    Example:
        >>> with Generation(collector, engines) as generation:  # doctest: +SKIP
        ...     first = generation.take(version=0)
        ...     generation.begin(version=0)
        ...     hidden = generation.wait()
        ...     second = generation.take(version=1)
    """

    def __init__(self, collector: Collector, engines: EnginePool) -> None:
        self._collector = collector
        self._engines = engines
        self._ahead: _Ahead | Collected | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the engines, and with them the generation that is under way."""
        self._engines.close()
        if isinstance(self._ahead, _Ahead):
            self._ahead.wait(timeout_seconds=_PATIENCE_SECONDS)

    def take(self, *, version: int) -> Collected:
        """The rollouts of the next iteration; if none were generated ahead, now, under weights `version`.

        Raises:
            RunError: whatever generating them raised, now or ahead; the collector is as it was before.
        """
        ahead, self._ahead = self._ahead, None
        if isinstance(ahead, _Ahead):
            return ahead.result()
        return ahead or self._collector.collect(self._engines, weight_version=version)

    def begin(self, *, version: int) -> None:
        """Begin to generate the next iteration's rollouts; the engines hold weights `version` until `wait`."""
        self._ahead = _Ahead(self._collector, self._engines, version=version)

    def wait(self) -> dict[str, Sum]:
        """Wait until the engines are idle; `time/generate_hidden` are the seconds in which others worked meanwhile."""
        if not isinstance(self._ahead, _Ahead):
            return {}
        began = time.monotonic()
        self._ahead.wait()
        waited = time.monotonic() - began
        return {"time/generate_hidden": Sum(max(0.0, self._ahead.seconds - waited))}

    def save(self, directory: Path) -> None:
        """Write what was generated ahead, if it was and did not fail."""
        ahead = self._ahead
        if isinstance(ahead, _Ahead):
            if ahead.failed:
                return
            ahead = ahead.result()
        if ahead is not None:
            _save(ahead, directory)

    def load(self, directory: Path) -> None:
        """Take up what `save` wrote, if it wrote anything. Raises `DumpError` if that is damaged."""
        if directory.is_dir():
            self._ahead = _load(directory)


class _Ahead:
    """One iteration's rollouts in the making, in a daemon thread: user code that hangs must not keep a run alive."""

    def __init__(self, collector: Collector, engines: EnginePool, *, version: int) -> None:
        self._found: Future[Collected] = Future()
        self.seconds = 0.0
        self._thread = Thread(target=self._run, args=(collector, engines, version), name="generation", daemon=True)
        self._thread.start()

    def _run(self, collector: Collector, engines: EnginePool, version: int) -> None:
        began = time.monotonic()
        try:
            found = collector.collect(engines, weight_version=version)
        except BaseException as error:  # handed to the thread that wants the rollouts
            if not engines.closed:
                _log.warning("generation failed, which ends the run after the iteration under way: %s", error)
            self._found.set_exception(error)
        else:
            self._found.set_result(found)
        finally:
            self.seconds = time.monotonic() - began

    @property
    def failed(self) -> bool:
        return self._found.exception() is not None

    def wait(self, *, timeout_seconds: float | None = None) -> None:
        self._thread.join(timeout_seconds)

    def result(self) -> Collected:
        return self._found.result()


def _save(collected: Collected, directory: Path) -> None:
    save_rollouts(collected.rollouts, directory)
    figures = {name: None if math.isnan(value) else value for name, value in reported(collected.metrics).items()}
    record = {"weight_version": collected.weight_version, "metrics": figures}
    (directory / _FIGURES).write_text(json.dumps(record, indent=2) + "\n")


def _load(directory: Path) -> Collected:
    path = directory / _FIGURES
    try:
        record = json.loads(path.read_text())
        figures = {name: math.nan if value is None else value for name, value in record["metrics"].items()}
        version = record["weight_version"]
    except (OSError, ValueError, KeyError) as error:
        raise DumpError(f"{path}: cannot be read ({error!r}): it is missing, cut off or damaged.") from error
    return Collected(rollouts=tuple(load_rollouts(directory)), metrics=figures, weight_version=version)
