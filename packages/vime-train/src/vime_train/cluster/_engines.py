"""All rollout engines as one `Engine`, which outlives the death of each.

Always true:

- requests are dealt over the engines and answered in their order; since every completion depends on its request alone,
  the answers do not depend on how many engines there are, or on which of them died on the way;
- an engine that died or does not answer, in a call or between two, is started again with the newest weights and its
  work is done again; one that raised is not: the same work would raise again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from vime_train.cluster._actors import make_engine, make_teacher
from vime_train.cluster._calls import Handle
from vime_train.cluster._slots import Slots

if TYPE_CHECKING:
    from pydantic import JsonValue

    from vime_train.config import EngineSection
    from vime_train.engine import Completion, GenerationRequest, ScoredSequence

_UNSENT = -1


class EnginePool(Slots):
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
        self._weights = (model_path, _UNSENT)
        self._fixed = {"section": section, "max_model_len": max_model_len, "seed": seed, "native": dict(native)}
        super().__init__(spawn, make=make_engine, start_arguments=self._start_arguments, section=section)

    def generate(self, requests: Sequence[GenerationRequest]) -> list[list[Completion]]:
        """Sample `num_samples` completions of every request."""
        answers = self.deal("generate", requests, doing=f"answer {len(requests)} requests")
        return cast("list[list[Completion]]", answers)

    def load_weights(self, directory: str, *, version: int) -> None:
        """Give every engine the weights of a Hugging Face directory, and call them `version`."""
        self._weights = (directory, version)
        arguments = [(directory,)] * self._section.engines
        self.each("load_weights", arguments, doing=f"load weight version {version}", version=version)

    def _start_arguments(self) -> dict[str, object]:
        path, version = self._weights
        return {**self._fixed, "model_path": path, "version": version}


class TeacherPool(Slots):
    """Engines that serve the teacher of a distillation; its weights stay.

    Args:
        spawn: starts the actor process of the engine with this number.
        section: the run's `[engine]` section, with as many engines as serve the teacher.
        model_path: the teacher's Hugging Face directory.
        max_model_len: longest sequence, in tokens.
        seed: seed of the engines' start-up.
    """

    def __init__(
        self,
        spawn: Callable[[int], Handle],
        *,
        section: EngineSection,
        model_path: str,
        max_model_len: int,
        seed: int,
    ) -> None:
        arguments = {"section": section, "model_path": model_path, "max_model_len": max_model_len, "seed": seed}
        super().__init__(spawn, make=make_teacher, start_arguments=lambda: arguments, section=section)

    def log_probs(self, sequences: Sequence[ScoredSequence]) -> list[tuple[float, ...]]:
        """The teacher's log-prob of every response token, at temperature 1."""
        scores = self.deal("log_probs", sequences, doing=f"score {len(sequences)} samples")
        return cast("list[tuple[float, ...]]", scores)
