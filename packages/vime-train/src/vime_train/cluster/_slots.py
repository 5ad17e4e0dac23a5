"""Engines that share one kind of work: dealt over them, answered in order, whatever happens to each.

Always true: item `i` of the work goes to engine `i % engines`, and its answer to place `i`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from vime_train.cluster import _calls
from vime_train.cluster._calls import Handle
from vime_train.cluster._engine_slot import EngineSlot

if TYPE_CHECKING:
    from vime_train.config import EngineSection

_PATIENCE_SECONDS = 5.0
"""How long the watch of an engine may take to notice that the run is over."""


class Slots:
    """`section.engines` engines, which begin to start at once.

    Args:
        spawn: starts the actor process of the engine with this number.
        make: makes what a process holds.
        start_arguments: what a new process begins with.
        section: the run's `[engine]` section.
    """

    def __init__(
        self,
        spawn: Callable[[int], Handle],
        *,
        make: Callable[..., object],
        start_arguments: Callable[[], dict[str, object]],
        section: EngineSection,
    ) -> None:
        self._section = section
        self._closed = False
        self._watching: list[threading.Thread] = []
        self._slots = [
            EngineSlot(partial(spawn, index), make=make, start_arguments=start_arguments, section=section)
            for index in range(section.engines)
        ]

    @property
    def restarts(self) -> int:
        """How often an engine was started again."""
        return sum(slot.restarts for slot in self._slots)

    @property
    def closed(self) -> bool:
        """Whether the engines were told to end; then none is started again, and no call is made."""
        return self._closed

    def ready(self) -> None:
        """Wait until every engine has started; from then on their health is watched."""
        _calls.wait(
            [slot.starting for slot in self._slots],
            timeout_seconds=self._section.start_timeout_seconds,
            setting="engine.start_timeout_seconds",
        )
        self._watching = [
            threading.Thread(target=slot.watch, name=f"health of {slot.handle.name}", daemon=True)
            for slot in self._slots
        ]
        for watch in self._watching:
            watch.start()

    def raise_if_start_failed(self) -> None:
        """Tell that an engine cannot start as soon as that is known, without waiting for the others.

        Raises:
            ActorError: with the cause.
        """
        _calls.raise_if_failed([slot.starting for slot in self._slots])

    def deal(self, method: str, work: Sequence[object], *, doing: str) -> list[object]:
        """The answers of a method that takes a list and answers with one."""
        count = len(self._slots)
        parts = [list(work[index::count]) for index in range(count)]
        merged: list[object] = [None] * len(work)
        for index, answer in enumerate(self.each(method, [(part,) for part in parts], doing=doing)):
            merged[index::count] = cast("list[object]", answer)
        return merged

    def each(
        self, method: str, arguments: Sequence[tuple[object, ...]], *, doing: str, **named: object
    ) -> list[object]:
        """One call per engine, each with arguments of its own."""
        pairs = zip(self._slots, arguments, strict=True)
        begun = [(slot, slot.begin(method, own, doing=doing, named=named)) for slot, own in pairs]
        return [slot.finish(work) for slot, work in begun]

    def close(self) -> None:
        """End every engine's process, also while other threads wait for it."""
        self._closed = True
        for slot in self._slots:
            slot.close()
        for watch in self._watching:
            watch.join(_PATIENCE_SECONDS)

    def busy_seconds(self) -> list[float]:
        """How long the process that each engine has now has worked so far."""
        return _calls.busy_seconds([slot.handle for slot in self._slots])

    def process_ids(self) -> list[int]:
        """The process of every engine."""
        return [slot.handle.process_id() for slot in self._slots]
