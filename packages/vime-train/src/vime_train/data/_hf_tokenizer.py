"""The tokenizer of a Hugging Face directory, behind our protocol. Imports transformers when it is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class HfTokenizer:
    """The tokenizer files of a Hugging Face directory."""

    def __init__(self, directory: str) -> None:
        from transformers import AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(directory, local_files_only=True)
        if self._tokenizer.eos_token_id is None:
            raise ValueError(
                f"the tokenizer in {directory} has no end-of-sequence token: set `eos_token` in its files."
            )

    @property
    def eos_token_id(self) -> int:
        """The token that ends an answer."""
        return int(self._tokenizer.eos_token_id)

    @property
    def pad_token_id(self) -> int:
        """The padding token, or the end of sequence where there is none."""
        pad = self._tokenizer.pad_token_id
        return self.eos_token_id if pad is None else int(pad)

    @property
    def vocab_size(self) -> int:
        """Tokens in all, added ones included."""
        return len(self._tokenizer)

    def encode(self, text: str) -> tuple[int, ...]:
        """Tokens of the text, with no special token added."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of the tokens, special ones left out."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))

    def chat_prompt(self, messages: Sequence[dict[str, str]], *, tools: Sequence[dict[str, Any]] = ()) -> str:
        """The conversation in the model's chat template, up to where the assistant answers.

        Raises:
            ValueError: if the template leaves the tools out: the model would never hear of them.
        """
        known = {"tools": list(tools)} if tools else {}
        text = self._tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True, **known)
        if tools and text == self.chat_prompt(messages):
            raise ValueError("the model's chat template leaves tools out: use a model whose template tells of them.")
        return str(text)

    def save(self, directory: str) -> None:
        """Write the tokenizer's files into a directory."""
        self._tokenizer.save_pretrained(directory)
