"""What the trainer asks of a rollout engine, and nothing more. Imports no vendor.

Always true of what `generate` returns:

- one list of completions per request, in the order of the requests, `num_samples` completions in each;
- a completion has as many log-probs as tokens, each the log-prob of the sampled token at the sampling temperature 1
  model distribution;
- `weight_version` is the version of the weights that produced every one of its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One prompt and how to sample from it; `temperature = 0` is greedy."""

    prompt_tokens: tuple[int, ...]
    num_samples: int
    temperature: float
    top_p: float
    max_new_tokens: int
    stop_token_ids: tuple[int, ...]
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One sampled answer: its tokens (with the stop token, if it stopped) and their log-probs."""

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    finish_reason: FinishReason
    weight_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredSequence:
    """Tokens that were written by another model, of which the last `response_length` are to be scored."""

    tokens: tuple[int, ...]
    response_length: int


class Engine(Protocol):
    """A rollout engine: weights in, completions out."""

    def generate(self, requests: Sequence[GenerationRequest]) -> list[list[Completion]]:
        """Sample `num_samples` completions of every request."""
        ...

    def load_weights(self, directory: str, *, version: int) -> None:
        """Take the weights of a Hugging Face directory and call them `version`."""
        ...

    def close(self) -> None:
        """Free the engine's memory and processes."""
        ...
