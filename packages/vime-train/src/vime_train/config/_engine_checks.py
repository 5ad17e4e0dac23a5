"""Launch checks of what vLLM can serve."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vime_train.config._run_config import RunConfig
    from vime_train.config._shape import ModelShape

CPU_MIN_HEAD_DIM = 32


def engine_problems(config: RunConfig, shape: ModelShape) -> Iterator[str]:
    """One sentence per reason why the engines cannot serve this model, or cannot be checked."""
    checked, engines = config.engine.max_checked_samples, config.engine.engines
    if checked is not None and checked < engines:
        yield (
            f"engine.max_checked_samples = {checked} is less than engine.engines = {engines}: an engine with stale "
            "weights could go unseen. Check at least one sample of each."
        )
    yield from _tensor_parallel(config, shape)
    if config.on_gpus:
        return
    if shape.tied_head:
        yield (
            f"{shape.origin} ties its LM head to the embedding (tie_word_embeddings): vLLM's CPU build serves a stale "
            "head after the first weight update. Untie it first, with `vime-train convert`."
        )
    if shape.head_dim < CPU_MIN_HEAD_DIM:
        yield (
            f"head_dim = {shape.head_dim} ({shape.origin}): vLLM's CPU attention needs at least {CPU_MIN_HEAD_DIM}. "
            f"Use head_dim = {CPU_MIN_HEAD_DIM} or more, with fewer heads if need be."
        )
    if config.engine.dtype == "float16":
        yield "engine.dtype = 'float16' without a GPU: use 'float32' or 'bfloat16'."


def _tensor_parallel(config: RunConfig, shape: ModelShape) -> Iterator[str]:
    size, heads, shared = config.engine.tensor_parallel_size, shape.num_attention_heads, shape.num_key_value_heads
    if heads % size:
        yield (
            f"engine.tensor_parallel_size = {size}: the model's {heads} attention heads ({shape.origin}) are not "
            f"divisible by {size}."
        )
    elif shared % size and size % shared:
        yield (
            f"engine.tensor_parallel_size = {size}: the model's {shared} key/value heads ({shape.origin}) can neither "
            f"be dealt out to {size} processes nor copied to them evenly."
        )
    share = config.cluster.gpus_per_process
    if size > 1 and 0 < share < 1:
        yield (
            f"engine.tensor_parallel_size = {size} with cluster.gpus_per_process = {share:g}: Ray reserves several "
            "GPUs whole or not at all. Set cluster.gpus_per_process = 1."
        )
