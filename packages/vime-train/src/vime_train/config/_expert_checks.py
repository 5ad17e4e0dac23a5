"""Launch checks of models with experts: do they divide, can vLLM serve them, is every option about them read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vime_train.config._sections_model import ModelSection

if TYPE_CHECKING:
    from vime_train.config._run_config import RunConfig
    from vime_train.config._shape import ExpertShape, ModelShape

CPU_HIDDEN_MULTIPLE = 32
"""What vLLM's CPU kernel of experts wants the hidden size to be a multiple of."""


def expert_problems(config: RunConfig, shape: ModelShape) -> Iterator[str]:
    """One sentence per reason why experts cannot be trained or served, or why an option about them is not read."""
    if shape.experts is None:
        yield from _dense(config, shape)
        return
    yield from _routing(shape.experts, shape.origin)
    yield from _replay(config)
    hidden = shape.experts.hidden_size
    if not config.on_gpus and hidden % CPU_HIDDEN_MULTIPLE:
        yield (
            f"hidden_size = {hidden} ({shape.origin}): vLLM's CPU kernel of experts needs a multiple of "
            f"{CPU_HIDDEN_MULTIPLE}."
        )


def _dense(config: RunConfig, shape: ModelShape) -> Iterator[str]:
    remedy = "Remove it, or train a model with experts (model.num_experts, or model.path)."
    if config.layout.ep > 1:
        yield f"layout.ep = {config.layout.ep}: the model has no experts ({shape.origin}) to spread. {remedy}"
    coefficient = config.train.router_aux_loss_coefficient
    if coefficient:
        yield f"train.router_aux_loss_coefficient = {coefficient:g}: the model has no router ({shape.origin}). {remedy}"
    if config.algorithm.routing_replay:
        yield f"algorithm.routing_replay = true: the model has no router ({shape.origin}). {remedy}"
    if config.model.path is None:
        for name in ("num_experts_per_tok", "moe_intermediate_size"):
            if getattr(config.model, name) != ModelSection.model_fields[name].default:
                yield f"model.{name} is read by nothing without model.num_experts. {remedy}"


def _routing(experts: ExpertShape, origin: str) -> Iterator[str]:
    if experts.per_token > experts.count:
        yield (
            f"num_experts_per_tok = {experts.per_token} ({origin}): the model has {experts.count} experts; use at most "
            f"{experts.count}."
        )
    if experts.per_token == 1 and experts.normalised:
        yield (
            f"num_experts_per_tok = 1 ({origin}): weights that sum to 1 over one expert are always 1, and the router "
            "would never learn; use at least 2."
        )


def spread_problems(config: RunConfig, shape: ModelShape) -> Iterator[str]:
    """One sentence per reason why the experts of a model, if it has any, cannot be dealt out to the ranks."""
    layout, experts, origin = config.layout, shape.experts, shape.origin
    if experts is None:
        return
    stage = layout.dp * layout.cp * layout.tp
    if experts.count % layout.ep:
        yield (
            f"layout.ep = {layout.ep}: the model's {experts.count} experts ({origin}) are not divisible by "
            f"{layout.ep}; choose layout.ep among the divisors of {experts.count}."
        )
    if stage % layout.ep:
        yield (
            f"layout.ep = {layout.ep}: experts are spread over the dp * cp * tp = {stage} ranks of a stage, which are "
            f"not divisible by {layout.ep}; choose layout.ep among the divisors of {stage}."
        )


def _replay(config: RunConfig) -> Iterator[str]:
    if not config.algorithm.routing_replay:
        return
    if config.algorithm.old_log_probs != "recompute":
        yield (
            "algorithm.routing_replay = true without algorithm.old_log_probs = 'recompute': the experts that are "
            "replayed are those of the pass that recomputes. Set the second, or remove the first."
        )
    if config.megatron.get("recompute_granularity") is not None:
        yield (
            "algorithm.routing_replay = true with megatron.recompute_granularity: a layer that is computed again would "
            "take the next micro-batch's experts. Use one of the two."
        )
