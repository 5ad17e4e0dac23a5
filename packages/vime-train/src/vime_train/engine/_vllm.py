"""vLLM as a rollout engine. The only module, with `_vllm_worker`, that imports vLLM.

Always true:

- vLLM runs in the calling process, so that the engine lives and dies with its actor; with
  `engine.tensor_parallel_size` above 1 processes of vLLM's own hold the weights: they end with it, and it with them;
- every completion carries the version of the weights that sampled all of its tokens;
- no state computed under old weights survives `load_weights`: prefix caching is off;
- weights that vLLM cannot take in place (a tied LM head) are refused, never half loaded.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, cast

import torch

from vime_train._imports import uncollected
from vime_train.engine._protocol import Completion, FinishReason, GenerationRequest, ScoredSequence
from vime_train.engine._sampling import EngineError, check_requests, spread_seed
from vime_train.engine._shared_memory import forget_names
from vime_train.engine._vllm_worker import EXTENSION

if TYPE_CHECKING:
    from pydantic import JsonValue
    from vllm import LLM, CompletionOutput

    from vime_train.config import EngineSection


class VllmEngine:
    """An `Engine` that holds one vLLM model; see `vime_train.engine.Engine` for what it promises.

    Args:
        model_path: Hugging Face directory: config and weights; no tokenizer is needed.
        section: the run's `[engine]` section.
        max_model_len: longest sequence, prompt and response, in tokens.
        seed: seed of vLLM's own start-up; sampling is seeded per call.
        version: what to call the weights of `model_path`.
        native: fields of vLLM's `EngineArgs` under its own names, laid over the ones that this class chooses.

    Raises:
        EngineError: if the model ties its LM head to the embedding.

    Example (needs vLLM and a model directory):
        >>> engine = VllmEngine("model", section=EngineSection(), max_model_len=96, seed=0)  # doctest: +SKIP
        >>> engine.generate([request])[0][0].tokens  # doctest: +SKIP
        (14, 3, 1)
    """

    def __init__(
        self,
        model_path: str,
        *,
        section: EngineSection,
        max_model_len: int,
        seed: int,
        version: int = 0,
        native: Mapping[str, JsonValue] | None = None,
    ) -> None:
        refuse_tied_head(model_path)
        self._max_model_len = max_model_len
        self._version = version
        self._llm = _start(model_path, section=section, max_model_len=max_model_len, seed=seed, native=native or {})

    def generate(self, requests: Sequence[GenerationRequest]) -> list[list[Completion]]:
        """Sample `num_samples` completions of every request; equal requests give equal answers.

        Raises:
            EngineError: if a request does not fit, with its position.
        """
        check_requests(requests, max_model_len=self._max_model_len)
        if not requests:
            return []
        from vllm import SamplingParams

        params = [
            SamplingParams(
                n=request.num_samples,
                max_tokens=request.max_new_tokens,
                temperature=request.temperature,
                top_p=request.top_p,
                logprobs=0,
                flat_logprobs=True,
                detokenize=False,
                stop_token_ids=list(request.stop_token_ids),
                seed=spread_seed(request.seed),
            )
            for request in requests
        ]
        prompts = [{"prompt_token_ids": list(request.prompt_tokens)} for request in requests]
        with _workers_alive(self._llm):
            outputs = self._llm.generate(prompts, params, use_tqdm=False)
        return [[self._completion(output) for output in request.outputs] for request in outputs]

    def load_weights(self, directory: str, *, version: int) -> None:
        """Take the weights of a Hugging Face directory in place, and call them `version`."""
        refuse_tied_head(directory)
        with _workers_alive(self._llm):
            if not torch.cuda.is_available():
                self._llm.collective_rpc("forget_packed_experts")
            self._llm.collective_rpc("reload_weights", kwargs={"weights_path": directory})
        self._version = version

    def close(self) -> None:
        """Shut vLLM down; the engine serves nothing afterwards."""
        self._llm.llm_engine.engine_core.shutdown()

    def _completion(self, output: CompletionOutput) -> Completion:
        return Completion(
            tokens=tuple(output.token_ids),
            log_probs=tuple(output.logprobs.logprobs),
            finish_reason=cast(FinishReason, output.finish_reason),
            weight_version=self._version,
        )


class VllmTeacher:
    """A vLLM model with fixed weights that scores what others wrote.

    Args:
        model_path: Hugging Face directory, also with a tied LM head; any model that vLLM serves.
        section: the run's `[engine]` section.
        max_model_len: longest sequence, in tokens.
        seed: seed of vLLM's own start-up.
    """

    def __init__(self, model_path: str, *, section: EngineSection, max_model_len: int, seed: int) -> None:
        # one more: vLLM always samples a token behind the prompt
        self._llm = _start(model_path, section=section, max_model_len=max_model_len + 1, seed=seed, native={})

    def log_probs(self, sequences: Sequence[ScoredSequence]) -> list[tuple[float, ...]]:
        """The log-prob of each of the last `response_length` tokens of every sequence, at temperature 1."""
        if not sequences:
            return []
        from vllm import SamplingParams

        params = SamplingParams(max_tokens=1, prompt_logprobs=0, flat_logprobs=True, detokenize=False)
        prompts = [{"prompt_token_ids": list(sequence.tokens)} for sequence in sequences]
        with _workers_alive(self._llm):
            outputs = self._llm.generate(prompts, params, use_tqdm=False)
        pairs = zip(sequences, outputs, strict=True)
        # the first token of a sequence has no log-prob, every other one has its own
        return [tuple(output.prompt_logprobs.logprobs[-sequence.response_length :]) for sequence, output in pairs]

    def close(self) -> None:
        """Shut vLLM down; the teacher serves nothing afterwards."""
        self._llm.llm_engine.engine_core.shutdown()


def _start(
    model_path: str, *, section: EngineSection, max_model_len: int, seed: int, native: Mapping[str, JsonValue]
) -> LLM:
    """vLLM in this process, with a model's weights."""
    with uncollected():
        from vllm import LLM

    torch.set_num_threads(section.threads)
    settings: dict[str, object] = {
        "dtype": section.dtype,
        "max_model_len": max_model_len,
        "max_num_seqs": section.max_num_seqs,
        "max_num_batched_tokens": max(section.max_num_batched_tokens, max_model_len),
        "tensor_parallel_size": section.tensor_parallel_size,
        "distributed_executor_backend": "uni" if section.tensor_parallel_size == 1 else "mp",
        "enforce_eager": not torch.cuda.is_available(),
        "enable_prefix_caching": False,
        "skip_tokenizer_init": True,
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
        "worker_extension_cls": EXTENSION,
        "seed": seed,
    }
    llm = LLM(model=model_path, **{**settings, **native})
    llm.llm_engine.model_executor.register_failure_callback(_end_process)
    forget_names()
    return llm


@contextmanager
def _workers_alive(llm: LLM) -> Iterator[None]:
    """End this process where the call failed since one of vLLM's own did, and so an actor dies of what killed a part.

    An exception instead would say that the same call would fail again.
    """
    from vllm.v1.executor.multiproc_executor import MultiprocExecutor

    executor = llm.llm_engine.model_executor
    try:
        yield
    except RuntimeError:
        if isinstance(executor, MultiprocExecutor) and executor.is_failed:
            _end_process()
        raise


def _end_process() -> NoReturn:
    """Leave at once: nothing in this process can be shut down in order any more."""
    print("a process of vLLM that held a part of the weights died: the engine ends", file=sys.stderr, flush=True)
    os._exit(1)


def refuse_tied_head(directory: str) -> None:
    """Refuse a model whose LM head is its embedding: vLLM's reload leaves a stale head behind, without an error.

    Raises:
        EngineError: if the directory's config ties the two (also where the key is absent, which means tied).
    """
    path = Path(directory, "config.json")
    if json.loads(path.read_text()).get("tie_word_embeddings", True):
        raise EngineError(
            f"{path} ties the LM head to the embedding; vLLM keeps serving the old head after new weights arrive: "
            "save the model with `tie_word_embeddings=false` and its own `lm_head.weight`."
        )
