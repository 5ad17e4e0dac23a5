"""The checks a request must pass, and how its seed becomes the seeds of its completions. Imports no vendor.

Always true:

- a completion depends on the weights, on its request and on its place among the request's completions, and on
  nothing else: another engine, a restarted engine or a resumed run samples the same tokens;
- a request that the engine cannot serve is an error that names its position, before anything is sampled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from vime_train._errors import RunError
from vime_train.engine._protocol import GenerationRequest


class EngineError(RunError, ValueError):
    """A request or a weight directory that the engine cannot serve."""


def spread_seed(seed: int) -> int:
    """Send neighbouring seeds far apart: 62 bits of a hash.

    vLLM seeds completion `i` of a request with `seed + i`, so without this the second completion of request 7 would
    draw the noise of the first completion of request 8.

    Example:
        >>> spread_seed(7) + 1 == spread_seed(8)
        False
    """
    return int.from_bytes(hashlib.sha256(str(seed).encode()).digest()[:8], "big") >> 2


def check_requests(requests: Sequence[GenerationRequest], *, max_model_len: int) -> None:
    """Refuse the first request that is empty or does not fit.

    Raises:
        EngineError: with the request's position, its lengths, and `max_model_len`, in tokens.
    """
    for position, request in enumerate(requests):
        if not request.prompt_tokens:
            raise EngineError(f"request {position} has an empty prompt: give at least one prompt token.")
        needed = len(request.prompt_tokens) + request.max_new_tokens
        if needed > max_model_len:
            raise EngineError(
                f"request {position} needs {needed} tokens ({len(request.prompt_tokens)} of prompt, "
                f"{request.max_new_tokens} new), but the engine was started for {max_model_len}: "
                "lower `rollout.max_new_tokens`, shorten the prompt, or raise the model's `max_position_embeddings`."
            )
