"""Problems from `reasoning-gym`, an environment library that makes and scores verifiable reasoning tasks.

Always true: problem `i` of a seed is the same in every run; a problem of another split is never drawn for training.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from vime_train.data._errors import DataError
from vime_train.data._prompts import RETRY_TEXT, Prompts
from vime_train.data._split import Split, split_of
from vime_train.data._text_source import TextSource

if TYPE_CHECKING:
    from vime_train.data._protocol import Tokenizer
    from vime_train.rollout import Problem

_SIZE = 2**31 - 1
_TRIES = 64
"""Tasks looked at for one problem until one is in the wanted split and short enough."""


class ReasoningGym(TextSource):
    """A data source over one dataset of reasoning-gym; `data.options` are its arguments.

    Args:
        dataset: name of the dataset, for example "chain_sum".
        tokenizer: the model's.
        max_prompt_tokens: longer prompts are left out and counted.
        answer_tag: read the answer between `<answer>` and `</answer>` where both are there.
        chat: whether a task's text is put into the model's chat template.
        system: a system message before every prompt.
        retry_text: what the user says after a wrong answer.
        options: everything else is passed to the dataset.
    """

    def __init__(
        self,
        *,
        tokenizer: Tokenizer,
        max_prompt_tokens: int,
        dataset: str,
        answer_tag: bool = True,
        chat: bool = True,
        system: str = "",
        retry_text: str = RETRY_TEXT,
        **options: str | int | float | bool,
    ) -> None:
        if find_spec("reasoning_gym") is None:
            raise DataError('data.source ReasoningGym needs its library: python -m pip install "vime-train[data]".')
        super().__init__(
            Prompts(
                tokenizer=tokenizer,
                max_prompt_tokens=max_prompt_tokens,
                chat=chat,
                system=system,
                retry_text=retry_text,
            )
        )
        self._name = dataset
        self._options = tuple(sorted(options.items()))
        self._answer_tag = answer_tag
        _dataset(dataset, 0, self._options)

    def problems(self, count: int, *, seed: int, start: int) -> list[Problem]:
        """Training problems `start` to `start + count - 1` of the endless sequence of `seed`."""
        return [self._find(seed, index, "train") for index in range(start, start + count)]

    def validation(self, count: int) -> list[Problem]:
        """Problems for tuning."""
        return [self._find(0, index, "validation") for index in range(count)]

    def held_out(self, count: int) -> list[Problem]:
        """Problems for the reported figures."""
        return [self._find(0, index, "held_out") for index in range(count)]

    def worked_example(
        self, problem: Problem, rng: random.Random, *, remaining_steps: int
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Prompt, and the bare answer with the end of sequence."""
        return problem.prompt_tokens, self._ended(problem.answer)

    def score(self, problem: Problem, answer: str, *, finished: bool) -> float:
        """The dataset's own score of the answer, from 0 to 1; 0 when the answer did not end."""
        if not finished:
            return 0.0
        seed, index = int(problem.metadata["seed"]), int(problem.metadata["index"])
        dataset = _dataset(self._name, seed, self._options)
        return float(dataset.score_answer(self._extract(answer), dataset[index]))

    def _extract(self, answer: str) -> str:
        if self._answer_tag and "<answer>" in answer and "</answer>" in answer:
            answer = answer.rpartition("<answer>")[2].partition("</answer>")[0]
        return answer.strip()

    def _find(self, seed: int, position: int, split: Split) -> Problem:
        dataset = _dataset(self._name, seed, self._options)
        for attempt in range(_TRIES):
            index = (position * _TRIES + attempt) % _SIZE
            entry: Mapping[str, Any] = dataset[index]
            if split_of(entry["question"]) != split:
                continue
            problem = self._prompts.problem(
                f"{self._name}-{seed}-{index}", entry["question"], str(entry["answer"]), {"seed": seed, "index": index}
            )
            if problem is not None:
                return problem
        raise DataError(
            f"reasoning-gym dataset {self._name!r}: no {split} problem within data.max_prompt_tokens = "
            f"{self._prompts.max_prompt_tokens} among {_TRIES} tasks: raise it, or make the tasks smaller."
        )


@lru_cache(maxsize=8)
def _dataset(name: str, seed: int, options: tuple[tuple[str, str | int | float | bool], ...]) -> Any:
    from reasoning_gym import create_dataset

    try:
        return create_dataset(name, seed=seed, size=_SIZE, **dict(options))
    except (TypeError, ValueError, AssertionError) as error:
        raise DataError(f"reasoning-gym dataset {name!r} with options {dict(options)}: {error}.") from error
