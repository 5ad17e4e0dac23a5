"""What the trainer asks of a data source and of a tokenizer. Plain values, no torch.

Always true of a data source:

- `problems` is a pure function of `(seed, start, count)`: asking for 2 x 16 problems gives those of 1 x 32;
- the three splits are disjoint: a problem of `held_out` or `validation` is never drawn by `problems`;
- `validation` is for tuning; `held_out` is for the reported figures and guides nothing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from vime_train.rollout import Problem


class Tokenizer(Protocol):
    """Text to tokens and back, and the files that make it a part of a Hugging Face directory."""

    @property
    def eos_token_id(self) -> int:
        """The token that ends an answer."""
        ...

    @property
    def pad_token_id(self) -> int:
        """A token that means nothing."""
        ...

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding that the tokenizer needs."""
        ...

    def encode(self, text: str) -> tuple[int, ...]:
        """Tokens of `text`, with no special token added."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of `tokens`; special tokens give no text."""
        ...

    def chat_prompt(self, messages: Sequence[dict[str, str]], *, tools: Sequence[dict[str, Any]] = ()) -> str:
        """The text of a conversation in the model's chat template, up to where the assistant answers.

        `tools` are the JSON schemas of functions that the assistant may call, as chat templates take them.
        """
        ...

    def save(self, directory: str) -> None:
        """Write the tokenizer's files into a Hugging Face directory."""
        ...


class DataSource(Protocol):
    """Problems, their worked answers and their scores."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model that answers."""
        ...

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Tokens that end an answer."""
        ...

    @property
    def left_out(self) -> int:
        """How many prompts were longer than `data.max_prompt_tokens` and were left out so far."""
        ...

    @property
    def num_problems(self) -> int | None:
        """Training problems of one epoch; None where there is no end of them."""
        ...

    def problems(self, count: int, *, seed: int, start: int) -> list[Problem]:
        """Training problems number `start` to `start + count - 1` of the endless sequence of `seed`."""
        ...

    def validation(self, count: int) -> list[Problem]:
        """Up to `count` problems for tuning; the same ones every time."""
        ...

    def held_out(self, count: int) -> list[Problem]:
        """Up to `count` problems for the reported figures; the same ones every time."""
        ...

    def worked_example(
        self, problem: Problem, rng: random.Random, *, remaining_steps: int
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Prompt tokens and answer tokens for supervised training, `remaining_steps` before its end."""
        ...

    def retry_prompt(self, prompt_tokens: tuple[int, ...], answer_tokens: tuple[int, ...]) -> tuple[int, ...]:
        """The prompt of a second attempt: what was asked, what was answered, and that it was not right."""
        ...

    def score(self, problem: Problem, answer: str, *, finished: bool) -> float:
        """Reward of an answer's text; `finished` is false when the answer was cut at the token limit."""
        ...
