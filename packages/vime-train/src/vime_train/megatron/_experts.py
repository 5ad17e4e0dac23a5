"""Which layers of a model route tokens to experts, read from a Hugging Face `config.json` of Qwen3-MoE.

Imports neither torch nor Megatron. Always true: what is accepted is computed as transformers computes it, up to the
auxiliary loss, which is the run's choice and not the model's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from vime_train.config import LayoutSection


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The experts of a model: each expert layer has `count` of them, and a token goes through `per_token`.

    `normalised` says whether the weights of a token's experts sum to 1; `layers` which layers have experts.
    """

    count: int
    per_token: int
    ffn_hidden_size: int
    normalised: bool
    layers: tuple[bool, ...]

    @property
    def everywhere(self) -> bool:
        """Whether no layer is dense."""
        return all(self.layers)


def read_experts(path: Path, config: Mapping[str, Any]) -> Experts:
    """Read the experts of the model whose `config.json` is at `path`.

    Raises:
        ValueError: a setting that the trainer does not compute.
    """
    count = config.get("num_experts", config.get("num_local_experts"))  # transformers 5 writes the second name
    experts = Experts(
        count=count or 0,
        per_token=config["num_experts_per_tok"],
        ffn_hidden_size=config["moe_intermediate_size"],
        normalised=config.get("norm_topk_prob", False),
        layers=_expert_layers(config) if count else (),
    )
    if not count or not any(experts.layers):
        raise ValueError(
            f"read_architecture: {path} names a model with experts, but no layer has any (num_experts = {count}): "
            "save it as the dense model that it is"
        )
    if experts.per_token > count:
        raise ValueError(
            f"read_architecture: {path} sends a token to num_experts_per_tok = {experts.per_token} of "
            f"num_experts = {count}: give at most {count}"
        )
    if experts.per_token == 1 and experts.normalised:
        raise ValueError(
            f"read_architecture: {path} has num_experts_per_tok = 1 with norm_topk_prob = true: every weight would be "
            "1, and the router would never learn; set one of the two otherwise"
        )
    return experts


def check_expert_layout(experts: Experts | None, layout: LayoutSection) -> None:
    """Refuse a layout that the experts cannot be dealt out to; a teacher without any may stand beside the policy.

    Raises:
        ValueError: the number that does not divide, and what would.
    """
    if experts is not None and experts.count % layout.ep:
        fits = [ep for ep in range(1, layout.ep) if experts.count % ep == 0]
        raise ValueError(
            f"layout: ep={layout.ep} does not divide the model's {experts.count} experts: set layout.ep to one of "
            f"{fits}"
        )


def _expert_layers(config: Mapping[str, Any]) -> tuple[bool, ...]:
    """Every `decoder_sparse_step`-th layer but for those of `mlp_only_layers`, counted from 0."""
    dense, step = config.get("mlp_only_layers") or (), config.get("decoder_sparse_step") or 1
    return tuple(layer not in dense and (layer + 1) % step == 0 for layer in range(config["num_hidden_layers"]))
