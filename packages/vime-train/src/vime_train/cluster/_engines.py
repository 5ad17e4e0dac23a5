"""All rollout engines as one `Engine`, which outlives the death of each.

Always true:

- requests are dealt over the engines and answered in their order; since every completion depends on its request alone,
  the answers do not depend on how many engines there are, or on which of them died on the way;
- an engine that died, or did not answer in time, is started again with the newest weights and its work is done again;
  one that raised is not: the same work would raise again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from vime_train.cluster import _calls
from vime_train.cluster._actors import make_engine
from vime_train.cluster._calls import Call, Handle
from vime_train.cluster._errors import ActorError

if TYPE_CHECKING:
    from pydantic import JsonValue

    from vime_train.config import EngineSection
    from vime_train.engine import Completion, GenerationRequest

_UNSENT = -1
_log = logging.getLogger("vime_train")


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
        self._spawn = spawn
        self._section = section
        self._weights = (model_path, _UNSENT)
        self._native = dict(native)
        self._max_model_len = max_model_len
        self._seed = seed
        self._restarts = [0] * section.engines
        self._handles: list[Handle] = []
        self._starting: list[Call] = []
        for index in range(section.engines):
            handle, starting = self._begin_start(index)
            self._handles.append(handle)
            self._starting.append(starting)

    @property
    def restarts(self) -> int:
        """How often an engine was started again."""
        return sum(self._restarts)

    def ready(self) -> None:
        """Wait until every engine has started."""
        _calls.wait(
            self._starting,
            timeout_seconds=self._section.start_timeout_seconds,
            setting="engine.start_timeout_seconds",
        )

    def raise_if_start_failed(self) -> None:
        """Tell that an engine cannot start as soon as that is known, without waiting for the others.

        Raises:
            ActorError: with the cause.
        """
        _calls.raise_if_failed(self._starting)

    def generate(self, requests: Sequence[GenerationRequest]) -> list[list[Completion]]:
        """Sample `num_samples` completions of every request."""
        count = len(self._handles)
        parts = [list(requests[index::count]) for index in range(count)]
        answers = self._each("generate", [(part,) for part in parts], doing=f"answer {len(requests)} requests")
        merged: list[list[Completion]] = [[] for _ in requests]
        for index, answer in enumerate(answers):
            merged[index::count] = cast("list[list[Completion]]", answer)
        return merged

    def load_weights(self, directory: str, *, version: int) -> None:
        """Give every engine the weights of a Hugging Face directory, and call them `version`."""
        self._weights = (directory, version)
        arguments = [(directory,)] * len(self._handles)
        self._each("load_weights", arguments, doing=f"load weight version {version}", version=version)

    def close(self) -> None:
        """End every engine's process."""
        for handle in self._handles:
            handle.kill()

    def process_ids(self) -> list[int]:
        """The process of every engine."""
        return [handle.process_id() for handle in self._handles]

    def _each(
        self, method: str, arguments: Sequence[tuple[object, ...]], *, doing: str, **named: object
    ) -> list[object]:
        under_way = [
            _calls.call(handle, method, *own, doing=doing, **named)
            for handle, own in zip(self._handles, arguments, strict=True)
        ]
        return [
            self._result(index, one, method, own, named)
            for index, (one, own) in enumerate(zip(under_way, arguments, strict=True))
        ]

    def _result(
        self, index: int, one: Call, method: str, arguments: tuple[object, ...], named: dict[str, object]
    ) -> object:
        while True:
            try:
                return self._wait(one)
            except ActorError as failure:
                if failure.how == "raised":
                    raise
                self._restart(index, failure)
                one = _calls.call(self._handles[index], method, *arguments, doing=one.doing, **named)

    def _wait(self, one: Call) -> object:
        return _calls.wait(
            [one],
            timeout_seconds=self._section.generate_timeout_seconds,
            setting="engine.generate_timeout_seconds",
        )[0]

    def _restart(self, index: int, failure: ActorError) -> None:
        if self._restarts[index] >= self._section.max_restarts:
            raise ActorError(
                f"engine-{index} failed {self._restarts[index] + 1} times, more than `engine.max_restarts` allows "
                f"({self._section.max_restarts}): {failure}",
                name=failure.name,
                how=failure.how,
            ) from failure
        self._restarts[index] += 1
        _log.warning("restarting engine-%d (%d): %s", index, self._restarts[index], failure)
        self._handles[index].kill()
        self._handles[index], starting = self._begin_start(index)
        _calls.wait(
            [starting],
            timeout_seconds=self._section.start_timeout_seconds,
            setting="engine.start_timeout_seconds",
        )

    def _begin_start(self, index: int) -> tuple[Handle, Call]:
        handle = self._spawn(index)
        path, version = self._weights
        arguments = {
            "model_path": path,
            "section": self._section,
            "max_model_len": self._max_model_len,
            "seed": self._seed,
            "version": version,
            "native": self._native,
        }
        return handle, _calls.start(handle, make_engine, arguments)
