"""Launch checks of the batch arithmetic and of the lengths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vime_schedule import TokenBudget

if TYPE_CHECKING:
    from vime_train.config._run_config import RunConfig
    from vime_train.config._shape import ModelShape


def batch_problems(config: RunConfig, shape: ModelShape) -> Iterator[str]:
    """One sentence per way in which the batches cannot work."""
    yield from _steps(config)
    yield from _budget(config)
    yield from _positions(config, shape)
    for name, one in config.evaluation.sets.items():
        if one.samples > 1 and one.temperature == 0:
            yield (
                f"evaluation.sets.{name}: {one.samples} samples at temperature 0 would all be the same; set its "
                "temperature above 0, or samples = 1."
            )
    if config.rollout.rollouts_per_prompt == 1 and config.rollout.drop_zero_variance:
        yield (
            "rollout.rollouts_per_prompt = 1 with rollout.drop_zero_variance = true: a group of one has no variance, "
            "so nothing would ever be trained. Use at least 2 rollouts per prompt."
        )


def _steps(config: RunConfig) -> Iterator[str]:
    size, rollouts = config.train.global_batch_size, config.rollouts_per_iteration
    if size > rollouts:
        yield (
            f"train.global_batch_size = {size} rollouts per optimizer step, but an iteration generates "
            f"rollout.prompts_per_iteration * rollout.rollouts_per_prompt = {config.rollout.prompts_per_iteration} * "
            f"{config.rollout.rollouts_per_prompt} = {rollouts}: lower the first or raise one of the others."
        )
    layout = config.layout
    group = layout.microbatch_group_size_per_vp_stage or layout.pp
    needed = layout.dp * (group if layout.vpp > 1 else 1)
    if config.batching.shortage == "error" and size < needed:
        yield (
            f"train.global_batch_size = {size} with batching.shortage = 'error': a step needs at least {needed} "
            f"samples (dp = {layout.dp}, pp = {layout.pp}, vpp = {layout.vpp}, group = {group}). Raise it, or use "
            "'fill'."
        )


def _budget(config: RunConfig) -> Iterator[str]:
    batching, longest = config.batching, config.max_sample_tokens
    budget = TokenBudget(
        max_tokens_per_gpu=batching.max_tokens_per_gpu,
        sequence_align=batching.sequence_align,
        pack_align=batching.pack_align,
    )
    held = budget.gpu_tokens([longest], config.layout.cp)
    if batching.oversize == "error" and held > batching.max_tokens_per_gpu:
        yield (
            f"batching.max_tokens_per_gpu = {batching.max_tokens_per_gpu}: the longest possible sample has {longest} "
            f"tokens and holds {held} on each GPU at cp = {config.layout.cp}. Raise it to at least {held}, "
            "shorten the prompts or answers, or choose batching.oversize = 'alone'."
        )


def _positions(config: RunConfig, shape: ModelShape) -> Iterator[str]:
    rollout, longest = config.rollout, config.max_sample_tokens
    if longest > shape.max_position_embeddings:
        yield (
            f"the longest possible sample has {longest} tokens (data.max_prompt_tokens = "
            f"{config.data.max_prompt_tokens}, rollout.max_attempts = {rollout.max_attempts} answers of "
            f"rollout.max_new_tokens = {rollout.max_new_tokens}), but the model has {shape.max_position_embeddings} "
            f"positions ({shape.origin}). Lower one of the three."
        )
