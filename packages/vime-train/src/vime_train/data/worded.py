"""Sums in words, for models that speak: "What is 3 + 4?".

Always true: the splits are those of the question's hash, so no sum is ever in two of them.
"""

from __future__ import annotations

import random
from itertools import product
from typing import TYPE_CHECKING

from vime_train.data._errors import DataError
from vime_train.data._prompts import Prompts
from vime_train.data._scores import last_number
from vime_train.data._split import Split, split_of
from vime_train.data._text_source import FiniteSource

if TYPE_CHECKING:
    from vime_train.data._protocol import Tokenizer
    from vime_train.rollout import Problem


class WordedSums(FiniteSource):
    """All sums of two numbers from 0 to `largest`; `data.options` are its arguments."""

    def __init__(
        self,
        *,
        tokenizer: Tokenizer,
        max_prompt_tokens: int,
        largest: int = 9,
        chat: bool = True,
        system: str = "You answer with one number.",
    ) -> None:
        prompts = Prompts(tokenizer=tokenizer, max_prompt_tokens=max_prompt_tokens, chat=chat, system=system)
        splits: dict[Split, list[Problem]] = {"train": [], "validation": [], "held_out": []}
        for left, right in product(range(largest + 1), repeat=2):
            question = f"What is {left} + {right}?"
            problem = prompts.problem(f"{left}+{right}", question, str(left + right), {})
            if problem is not None:
                splits[split_of(question)].append(problem)
        if not splits["train"]:
            raise DataError(f"no sum fits data.max_prompt_tokens = {max_prompt_tokens}: raise it.")
        super().__init__(prompts, **splits, shuffle=True)

    def worked_example(
        self, problem: Problem, rng: random.Random, *, remaining_steps: int
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Prompt, and the number with the end of sequence."""
        return problem.prompt_tokens, self._ended(problem.answer)

    def score(self, problem: Problem, answer: str, *, finished: bool) -> float:
        """1 when the last number is the sum, else 0; a number that the token limit may have cut does not count."""
        return float(last_number(answer if finished else answer.rstrip("0123456789.,"), problem.answer))
