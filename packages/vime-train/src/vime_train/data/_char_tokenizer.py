"""A character tokenizer: one token per character, readable, and a real Hugging Face tokenizer once saved.

Always true: `decode(encode(text)) == text` for text of the alphabet; token 0 is padding, token 1 ends an answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PAD_TOKEN = "<pad>"
EOS_TOKEN = "<eos>"


@dataclass(frozen=True, slots=True, kw_only=True)
class CharTokenizer:
    """One token per character of `alphabet`, filled up with unused tokens to `vocab_size`.

    >>> tokenizer = CharTokenizer(alphabet="ab=", vocab_size=8)
    >>> tokenizer.encode("a=b"), tokenizer.decode((2, 4, 3, 1))
    ((2, 4, 3), 'a=b')
    """

    alphabet: str
    vocab_size: int = 64
    _token_of: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(set(self.alphabet)) != len(self.alphabet):
            raise ValueError(f"alphabet {self.alphabet!r} repeats a character: give each character once.")
        if len(self.alphabet) + 2 > self.vocab_size:
            raise ValueError(
                f"an alphabet of {len(self.alphabet)} characters and 2 special tokens need vocab_size >= "
                f"{len(self.alphabet) + 2}, got {self.vocab_size}."
            )
        object.__setattr__(self, "_token_of", {char: index + 2 for index, char in enumerate(self.alphabet)})

    @property
    def pad_token_id(self) -> int:
        """Token 0."""
        return 0

    @property
    def eos_token_id(self) -> int:
        """Token 1."""
        return 1

    def encode(self, text: str) -> tuple[int, ...]:
        """One token per character; a character outside the alphabet is a `ValueError`."""
        unknown = sorted(set(text) - self._token_of.keys())
        if unknown:
            raise ValueError(f"{text!r} holds {unknown}, which the alphabet {self.alphabet!r} does not.")
        return tuple(self._token_of[char] for char in text)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of the tokens; special and unused tokens give no text."""
        last = len(self.alphabet) + 2
        return "".join(self.alphabet[token - 2] for token in tokens if 2 <= token < last)

    def chat_prompt(self, messages: Sequence[dict[str, str]], *, tools: Sequence[dict[str, Any]] = ()) -> str:
        """The contents one after the other: a character model knows no roles, and no tools."""
        if tools:
            raise ValueError("a character tokenizer has no chat template, so it cannot tell of tools.")
        return "".join(message["content"] for message in messages)

    def save(self, directory: str) -> None:
        """Write `tokenizer.json` and `tokenizer_config.json`; `transformers.AutoTokenizer` loads them."""
        from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

        unused = [f"<unused{index}>" for index in range(self.vocab_size - len(self.alphabet) - 2)]
        vocabulary = {token: index for index, token in enumerate([PAD_TOKEN, EOS_TOKEN, *self.alphabet, *unused])}
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=PAD_TOKEN))
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
        tokenizer.decoder = decoders.Fuse()
        tokenizer.add_special_tokens([PAD_TOKEN, EOS_TOKEN])
        Path(directory).mkdir(parents=True, exist_ok=True)
        tokenizer.save(str(Path(directory, "tokenizer.json")))
        settings = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "pad_token": PAD_TOKEN,
            "eos_token": EOS_TOKEN,
            "clean_up_tokenization_spaces": False,
            "model_max_length": 2**31 - 1,
        }
        Path(directory, "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
