"""Launch checks of the algorithm: options fit together, and models that it names fit the policy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vime_train.config._errors import ConfigError
from vime_train.config._layout_checks import model_problems
from vime_train.config._sections_model import ModelSection
from vime_train.config._shape import ModelShape

if TYPE_CHECKING:
    from vime_train.config._run_config import RunConfig


def algorithm_problems(config: RunConfig, shape: ModelShape) -> Iterator[str]:
    """One sentence per way in which the algorithm cannot work."""
    yield from _estimator(config)
    yield from _zero_variance(config)
    yield from _additions(config)
    yield from _warmup_and_reference(config)
    yield from _served_teacher(config)
    yield from _learning_rate(config)
    yield from _other_models(config, shape)


def _estimator(config: RunConfig) -> Iterator[str]:
    section = config.algorithm
    learns_otherwise = section.loss == "sft" or section.distillation.coefficient > 0
    if section.advantage_function is not None and section.advantage != "grpo":
        yield (
            f"algorithm.advantage_function = {section.advantage_function!r} replaces the estimator, and "
            f"algorithm.advantage = {section.advantage!r} is another one: remove one of them."
        )
    if section.loss_function is not None and section.loss != "policy":
        yield (
            f"algorithm.loss_function = {section.loss_function!r} replaces the loss, and algorithm.loss = "
            f"{section.loss!r} is another one: remove one of them."
        )
    if config.rollout.rollouts_per_prompt == 1 and section.group_relative and section.advantage_function is None:
        yield (
            f"rollout.rollouts_per_prompt = 1 with algorithm.advantage = {section.advantage!r}: a group of one has "
            "advantage 0. Use at least 2 rollouts per prompt, or 'reinforce_plus_plus' or 'gae'."
        )
    if section.advantage == "none" and section.advantage_function is None and not learns_otherwise:
        yield (
            "algorithm.advantage = 'none' with algorithm.loss = "
            f"{section.loss!r} and algorithm.distillation.coefficient = 0: nothing would be learnt. Name an estimator, "
            "or set the coefficient."
        )
    if section.loss == "sft" and section.advantage != "none":
        yield (
            f"algorithm.loss = 'sft' reads no advantages, but algorithm.advantage = {section.advantage!r}: use 'none'."
        )
    if section.loss == "sft" and section.distillation.coefficient > 0:
        yield (
            f"algorithm.loss = 'sft' reads no advantages, but algorithm.distillation.coefficient = "
            f"{section.distillation.coefficient:g} changes them: use algorithm.loss = 'policy'."
        )
    if section.has_critic and config.megatron.get("sequence_parallel"):
        yield (
            "algorithm.advantage = 'gae' with megatron.sequence_parallel = true: the critic's head needs every token "
            "on every TP rank. Leave sequence_parallel out."
        )
    if section.aggregation == "constant" and section.constant_tokens is None:
        longest = config.rollout.max_attempts * config.rollout.max_new_tokens
        yield (
            "algorithm.aggregation = 'constant' needs algorithm.constant_tokens, the tokens that a rollout is divided "
            f"by: for Dr.GRPO the longest response, rollout.max_attempts * rollout.max_new_tokens = {longest}."
        )


def _zero_variance(config: RunConfig) -> Iterator[str]:
    """Leaving groups out must be the same as giving them advantage 0."""
    section = config.algorithm
    if not config.rollout.drop_zero_variance or section.advantage_function is not None:
        return
    reasons = [
        (not section.group_relative, f"algorithm.advantage = {section.advantage!r} is not relative to a group"),
        (section.group_relative and section.whitens, "advantages are whitened over all rollouts of an iteration"),
        (section.kl_in_loss, f"algorithm.kl.coefficient = {section.kl.coefficient:g} trains on every rollout"),
        (
            section.entropy_coefficient > 0,
            f"algorithm.entropy_coefficient = {section.entropy_coefficient:g} trains on every rollout",
        ),
        (
            section.distillation.coefficient > 0,
            f"algorithm.distillation.coefficient = {section.distillation.coefficient:g} trains on every rollout",
        ),
    ]
    for applies, reason in reasons:
        if applies:
            yield (
                f"rollout.drop_zero_variance = true leaves out groups of equal rewards, but {reason}: set "
                "rollout.drop_zero_variance = false."
            )
            return


def _additions(config: RunConfig) -> Iterator[str]:
    section, correction = config.algorithm, config.algorithm.correction
    if section.kl_in_reward and not section.takes_kl_in_reward:
        yield (
            f"algorithm.kl.placement = 'reward' with algorithm.advantage = {section.advantage!r}: only "
            "'reinforce_plus_plus', 'reinforce_plus_plus_baseline' and 'gae' have rewards of tokens. Use "
            "algorithm.kl.placement = 'loss'."
        )
    if correction.kind != "none" and section.old_log_probs != "recompute":
        yield (
            f"algorithm.correction.kind = {correction.kind!r} compares the trainer's log-probs with the engine's, but "
            "algorithm.old_log_probs = 'rollout' takes the engine's for both: use 'recompute'."
        )
    temperature = config.rollout.temperature
    if temperature != 1 and section.old_log_probs != "recompute" and section.loss != "sft":
        yield (
            f"rollout.temperature = {temperature:g}: the engine reports log-probs at temperature 1, not those that it "
            "sampled with. Use algorithm.old_log_probs = 'recompute', which the trainers do at this temperature."
        )
    if temperature != 1 and correction.kind != "none":
        yield (
            f"rollout.temperature = {temperature:g} with algorithm.correction.kind = {correction.kind!r}: the engine's "
            "log-probs, at temperature 1, cannot be compared. Use one of the two."
        )
    if config.rollout.top_p < 1 and section.loss != "sft" and not config.debug.rollout_only:
        yield (
            f"rollout.top_p = {config.rollout.top_p:g}: answers would be sampled from a part of the distribution, and "
            "the trainers' log-probs are of all of it: every ratio, and with it the gradient, would be biased. Use "
            "rollout.top_p = 1; evaluation.sets.NAME.top_p may be lower."
        )
    low, high = correction.low, correction.high
    if low is not None and high is not None and low > high:
        yield f"algorithm.correction.low = {low:g} is above algorithm.correction.high = {high:g}: swap them."


def _warmup_and_reference(config: RunConfig) -> Iterator[str]:
    warmup, kl = config.critic.warmup_iterations, config.algorithm.kl
    if warmup >= config.train.iterations and config.train.epochs is None:
        yield (
            f"critic.warmup_iterations = {warmup} of train.iterations = {config.train.iterations}: the policy would "
            "never be trained. Lower the first or raise the second."
        )
    if kl.reference is not None and kl.reference_every:
        yield (
            f"algorithm.kl.reference = {kl.reference!r} is a model that stays, and algorithm.kl.reference_every = "
            f"{kl.reference_every} lets the reference follow the policy: remove one of them."
        )


def _served_teacher(config: RunConfig) -> Iterator[str]:
    section = config.algorithm.distillation
    if not section.engines:
        return
    key = f"algorithm.distillation.engines = {section.engines}"
    if section.teacher is None:
        yield f"{key} serve nothing: set algorithm.distillation.teacher, or remove it to distil from the reference."
    if config.rollout.temperature != 1:
        yield (
            f"{key} with rollout.temperature = {config.rollout.temperature:g}: vLLM scores at temperature 1. Let the "
            "trainers score the teacher (engines = 0), or sample at 1."
        )


def _learning_rate(config: RunConfig) -> Iterator[str]:
    section = config.optimizer
    total = config.train.iterations * config.rollouts_per_iteration
    if section.min_lr > section.lr:
        yield f"optimizer.min_lr = {section.min_lr:g} is above optimizer.lr = {section.lr:g}: lower it."
    end = total if section.decay_rollouts is None or section.schedule == "constant" else section.decay_rollouts
    is_known = config.train.epochs is None  # else it is checked again once the data has told the iterations
    if section.warmup_rollouts >= end and is_known:
        yield (
            f"optimizer.warmup_rollouts = {section.warmup_rollouts} of {end} rollouts (the run generates {total}): "
            f"the rate would never be reached, use less than {end}."
        )


def _other_models(config: RunConfig, shape: ModelShape) -> Iterator[str]:
    section = config.algorithm
    named = {
        "algorithm.kl.reference": section.kl.reference,
        "algorithm.distillation.teacher": section.distillation.teacher,
    }
    for key, path in named.items():
        if path is None:
            continue
        try:
            other = ModelShape.of(ModelSection(path=path))
        except ConfigError as error:
            yield str(error).replace("model.path", key)
            continue
        served = key == "algorithm.distillation.teacher" and section.distillation.engines > 0
        if not served:
            yield from model_problems(config, other)
        if shape.vocab_size is not None and other.vocab_size != shape.vocab_size:
            yield (
                f"{key} = {path!r} has {other.vocab_size} vocabulary entries, the policy {shape.vocab_size}: tokens "
                "would mean something else. Name a model with the policy's tokenizer."
            )
        # vLLM always samples one more token behind the one that it is to score
        if other.max_position_embeddings < config.max_sample_tokens + served:
            yield (
                f"{key} = {path!r} has {other.max_position_embeddings} positions, the longest possible sample "
                f"{config.max_sample_tokens} tokens{' and one more' if served else ''}: shorten prompts or answers, or "
                "name another model."
            )
