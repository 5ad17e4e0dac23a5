"""From a prompt's text or messages to its tokens, and from a wrong answer to the next question.

Always true: a prompt longer than `max_prompt_tokens` is left out and counted, never cut.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vime_train.rollout import Problem

if TYPE_CHECKING:
    from vime_train.data._protocol import Tokenizer

Messages = Sequence[dict[str, str]]
Tools = Sequence[dict[str, Any]]
_ANSWER = "\u241fanswer\u241f"
RETRY_TEXT = "That is not right. Try again."


@dataclass(slots=True, kw_only=True)
class Prompts:
    """Makes problems out of texts; with `chat` a text becomes a user's message in the model's template."""

    tokenizer: Tokenizer
    max_prompt_tokens: int
    chat: bool = True
    system: str = ""
    retry_text: str = RETRY_TEXT
    left_out: int = 0
    _retry_tokens: tuple[int, ...] = field(init=False, default=())

    def problem(
        self,
        problem_id: str,
        prompt: str | Messages,
        answer: str,
        metadata: dict[str, str | int | float | bool],
        *,
        tools: Tools = (),
    ) -> Problem | None:
        """The problem, or None when its prompt is too long; its metadata hold the schemas of `tools` as JSON.

        Raises:
            ValueError: if there are tools and nothing that tells the model of them.
        """
        text = self._text(prompt, tools)
        tokens = self.tokenizer.encode(text)
        if len(tokens) > self.max_prompt_tokens:
            self.left_out += 1
            return None
        if tools:
            metadata = {**metadata, "tools": json.dumps(tools)}
        return Problem(problem_id=problem_id, prompt=text, answer=answer, prompt_tokens=tokens, metadata=metadata)

    def retry_prompt(self, prompt_tokens: tuple[int, ...], answer_tokens: tuple[int, ...]) -> tuple[int, ...]:
        """The conversation so far, and the user's message that the answer was not right."""
        if not self._retry_tokens:
            self._retry_tokens = self.tokenizer.encode(self._between_answers())
        retry = self._retry_tokens
        if answer_tokens and retry and answer_tokens[-1] == retry[0]:
            retry = retry[1:]
        return prompt_tokens + answer_tokens + retry

    def _text(self, prompt: str | Messages, tools: Tools) -> str:
        if isinstance(prompt, str) and not self.chat:
            if tools:
                raise ValueError("a text prompt has no place for tools: set chat = true, or give messages.")
            return prompt
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
        if self.system:
            messages = [{"role": "system", "content": self.system}, *messages]
        return self.tokenizer.chat_prompt(messages, tools=tools)

    def _between_answers(self) -> str:
        """What the template writes between the assistant's answer and its next one."""
        if not self.chat:
            return self.retry_text
        conversation = [
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": _ANSWER},
            {"role": "user", "content": self.retry_text},
        ]
        return self.tokenizer.chat_prompt(conversation).rpartition(_ANSWER)[2]
