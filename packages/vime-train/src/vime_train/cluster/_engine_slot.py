"""One rollout engine that outlives its process.

Always true:

- a process that died, did not answer in time, or did not tell its health in time is replaced by a new one, which begins
  with the newest weights; whoever waits for the old one's work then begins it again;
- one thread at a time replaces it, and the others wait for that; a process is replaced once, however many saw its end;
- after `engine.max_restarts` replacements, or one that cannot start, every call raises why.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vime_train.cluster import _calls
from vime_train.cluster._calls import Call, Handle
from vime_train.cluster._errors import ActorError, ClusterError

if TYPE_CHECKING:
    from vime_train.config import EngineSection

_log = logging.getLogger("vime_train")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Life:
    """One process of the engine, and the call that starts it."""

    handle: Handle
    starting: Call


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """A call that was begun, with what it takes to begin it again."""

    life: _Life
    call: Call
    method: str
    arguments: tuple[object, ...]
    named: Mapping[str, object]


class EngineSlot:
    """The engine with one number, whichever process it has.

    Args:
        spawn: starts an actor process for it.
        make: makes what the process holds.
        start_arguments: what a new process begins with, its weights included.
        section: the run's `[engine]` section.
    """

    def __init__(
        self,
        spawn: Callable[[], Handle],
        *,
        make: Callable[..., object],
        start_arguments: Callable[[], dict[str, object]],
        section: EngineSection,
    ) -> None:
        self._spawn = spawn
        self._make = make
        self._start_arguments = start_arguments
        self._section = section
        self._replacing = threading.Lock()
        self._over = threading.Event()
        self._given_up: ActorError | None = None
        self.restarts = 0
        self._life = self._begin_life()

    @property
    def handle(self) -> Handle:
        """The process that it has now."""
        return self._life.handle

    @property
    def starting(self) -> Call:
        """The call that starts that process."""
        return self._life.starting

    def begin(self, method: str, arguments: tuple[object, ...], *, doing: str, named: Mapping[str, object]) -> Work:
        """Begin a call, on a new process if the old one is being replaced.

        Raises:
            ActorError: if it was given up.
            ClusterError: if it was closed.
        """
        with self._replacing:
            if self._given_up is not None:
                raise self._given_up
            if self._over.is_set():
                raise ClusterError(f"{self.handle.name}, asked to {doing}, was told to end: the run is over.")
            life = self._life
            call = _calls.call(life.handle, method, *arguments, doing=doing, **named)
            return Work(life=life, call=call, method=method, arguments=arguments, named=named)

    def finish(self, work: Work) -> object:
        """The result of a call, begun again as often as the process was replaced meanwhile.

        Raises:
            ActorError: if the call raised, or the engine was given up.
        """
        while True:
            try:
                return _calls.wait(
                    [work.call],
                    timeout_seconds=self._section.generate_timeout_seconds,
                    setting="engine.generate_timeout_seconds",
                )[0]
            except ActorError as failure:
                if failure.how == "raised" or self._over.is_set():
                    raise
                self._replace(work.life, failure)
                work = self.begin(work.method, work.arguments, doing=work.call.doing, named=work.named)

    def watch(self) -> None:
        """Ask for the engine's health every `health_interval_seconds`, until it is closed or given up.

        A process that is gone or does not answer within `health_timeout_seconds` is replaced.
        """
        while self._given_up is None and not self._over.wait(self._section.health_interval_seconds):
            with self._replacing:
                life = self._life
            try:
                self._ask_health(life)
            except ActorError as failure:
                self._replace_unasked(life, failure)

    def close(self) -> None:
        """End the process, also while others wait for it."""
        self._over.set()
        self.handle.kill()

    def _ask_health(self, life: _Life) -> None:
        _calls.wait(
            [_calls.ask_health(life.handle)],
            timeout_seconds=self._section.health_timeout_seconds,
            setting="engine.health_timeout_seconds",
        )

    def _replace_unasked(self, life: _Life, failure: ActorError) -> None:
        """Replace a process that nobody waits for; what goes wrong is raised when somebody does."""
        if self._over.is_set():
            return
        try:
            self._replace(life, failure)
        except ActorError as final:
            _log.warning("this ends the run when it next needs the engine: %s", final)

    def _replace(self, life: _Life, failure: ActorError) -> None:
        with self._replacing:
            if self._given_up is not None:
                raise self._given_up
            if self._life is not life:
                return
            try:
                self._start_again(failure)
            except ActorError as final:
                self._given_up = final
                raise

    def _start_again(self, failure: ActorError) -> None:
        limit, name = self._section.max_restarts, self.handle.name
        if self.restarts >= limit:
            raise ActorError(
                f"{name} failed {self.restarts + 1} times, more than `engine.max_restarts` allows ({limit}): {failure}",
                name=failure.name,
                how=failure.how,
            ) from failure
        self.restarts += 1
        _log.warning("restarting %s (%d): %s", name, self.restarts, failure)
        self.handle.kill()
        self._life = self._begin_life()
        if self._over.is_set():
            self.handle.kill()
        _calls.wait(
            [self.starting],
            timeout_seconds=self._section.start_timeout_seconds,
            setting="engine.start_timeout_seconds",
        )

    def _begin_life(self) -> _Life:
        handle = self._spawn()
        return _Life(handle=handle, starting=_calls.start(handle, self._make, self._start_arguments()))
