"""What sources for models that speak have in common: prompts in a chat template, retries, and finite sets of problems.

Always true of a finite source: a problem of `held_out` or `validation` is never in the training set, also when the same
prompt stands in both; every epoch draws each training problem once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vime_train.data._epochs import epoch_index

if TYPE_CHECKING:
    from vime_train.data._prompts import Prompts
    from vime_train.data._protocol import Tokenizer
    from vime_train.rollout import Problem


class TextSource:
    """The part of a data source that depends on its prompts alone."""

    def __init__(self, prompts: Prompts) -> None:
        self._prompts = prompts

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model that answers."""
        return self._prompts.tokenizer

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """The end of sequence."""
        return (self.tokenizer.eos_token_id,)

    @property
    def left_out(self) -> int:
        """Prompts that were too long."""
        return self._prompts.left_out

    @property
    def num_problems(self) -> int | None:
        """No end of them, unless told otherwise."""
        return None

    def retry_prompt(self, prompt_tokens: tuple[int, ...], answer_tokens: tuple[int, ...]) -> tuple[int, ...]:
        """The conversation so far, and that the answer was not right."""
        return self._prompts.retry_prompt(prompt_tokens, answer_tokens)

    def _ended(self, answer: str) -> tuple[int, ...]:
        return (*self.tokenizer.encode(answer), self.tokenizer.eos_token_id)


class FiniteSource(TextSource):
    """A source of finitely many problems, in three splits."""

    def __init__(
        self,
        prompts: Prompts,
        *,
        train: Sequence[Problem],
        validation: Sequence[Problem],
        held_out: Sequence[Problem],
        shuffle: bool,
    ) -> None:
        super().__init__(prompts)
        kept_apart = {problem.prompt for problem in (*validation, *held_out)}
        self._train = [problem for problem in train if problem.prompt not in kept_apart]
        self._validation = list(validation)
        self._held_out = list(held_out)
        self._shuffle = shuffle

    @property
    def num_problems(self) -> int:
        """Training problems, those of the other splits left out."""
        return len(self._train)

    def problems(self, count: int, *, seed: int, start: int) -> list[Problem]:
        """Training problems `start` to `start + count - 1`, epoch after epoch."""
        places = (
            epoch_index(position, size=len(self._train), seed=seed, shuffle=self._shuffle)
            for position in range(start, start + count)
        )
        return [self._train[place] for place in places]

    def validation(self, count: int) -> list[Problem]:
        """The first `count` problems for tuning."""
        return self._validation[:count]

    def held_out(self, count: int) -> list[Problem]:
        """The first `count` problems for the reported figures."""
        return self._held_out[:count]
