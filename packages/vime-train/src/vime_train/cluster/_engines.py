"""All rollout engines as one `Engine`, which outlives the death of each.

Always true:

- requests are dealt over the engines and answered in their order; since every completion depends on its request alone,
  the answers do not depend on how many engines there are, or on which of them died on the way;
- an engine that died or does not answer, in a call or between two, is started again with the newest weights and its
  work is done again; one that raised is not: the same work would raise again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from vime_train.cluster import _calls
from vime_train.cluster._calls import Handle
from vime_train.cluster._engine_slot import EngineSlot

if TYPE_CHECKING:
    from pydantic import JsonValue

    from vime_train.config import EngineSection
    from vime_train.engine import Completion, GenerationRequest

_UNSENT = -1
_PATIENCE_SECONDS = 5.0
"""How long the watch of an engine may take to notice that the run is over."""


class EnginePool:
    """The rollout engines of a run; itself a `vime_train.engine.Engine`.

    Args:
        spawn: starts the actor process of the engine with this number.
        section: the run's `[engine]` section.
        model_path: Hugging Face directory to start from; its weights are version -1 until `load_weights`.
        max_model_len: longest sequence, in tokens.
        seed: seed of the engines' start-up.
        native: fields of vLLM's `EngineArgs`, under its own names.
    """

    def __init__(
        self,
        spawn: Callable[[int], Handle],
        *,
        section: EngineSection,
        model_path: str,
        max_model_len: int,
        seed: int,
        native: Mapping[str, JsonValue],
    ) -> None:
        self._section = section
        self._weights = (model_path, _UNSENT)
        self._fixed = {"section": section, "max_model_len": max_model_len, "seed": seed, "native": dict(native)}
        self._closed = False
        self._watching: list[threading.Thread] = []
        self._slots = [
            EngineSlot(partial(spawn, index), start_arguments=self._start_arguments, section=section)
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

    def generate(self, requests: Sequence[GenerationRequest]) -> list[list[Completion]]:
        """Sample `num_samples` completions of every request."""
        count = len(self._slots)
        parts = [list(requests[index::count]) for index in range(count)]
        answers = self._each("generate", [(part,) for part in parts], doing=f"answer {len(requests)} requests")
        merged: list[list[Completion]] = [[] for _ in requests]
        for index, answer in enumerate(answers):
            merged[index::count] = cast("list[list[Completion]]", answer)
        return merged

    def load_weights(self, directory: str, *, version: int) -> None:
        """Give every engine the weights of a Hugging Face directory, and call them `version`."""
        self._weights = (directory, version)
        arguments = [(directory,)] * len(self._slots)
        self._each("load_weights", arguments, doing=f"load weight version {version}", version=version)

    def close(self) -> None:
        """End every engine's process, also while other threads wait for it."""
        self._closed = True
        for slot in self._slots:
            slot.close()
        for watch in self._watching:
            watch.join(_PATIENCE_SECONDS)

    def process_ids(self) -> list[int]:
        """The process of every engine."""
        return [slot.handle.process_id() for slot in self._slots]

    def _each(
        self, method: str, arguments: Sequence[tuple[object, ...]], *, doing: str, **named: object
    ) -> list[object]:
        pairs = zip(self._slots, arguments, strict=True)
        begun = [(slot, slot.begin(method, own, doing=doing, named=named)) for slot, own in pairs]
        return [slot.finish(work) for slot, work in begun]

    def _start_arguments(self) -> dict[str, object]:
        path, version = self._weights
        return {**self._fixed, "model_path": path, "version": version}
