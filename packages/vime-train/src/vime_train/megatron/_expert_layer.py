"""Megatron's layer of experts where tensor parallelism does not cut the sequence, and where there is no GPU.

Always true: every token goes through its experts once, on one rank of the expert group, so that the gradient of an
expert is the sum over tokens, whatever TP is; experts are not cut by TP, they are spread over ranks. Router and its
auxiliary loss see all tokens of the micro-batch on every TP rank.

Under sequence parallelism (Transformer Engine's layers) Megatron's own layer already has this rank's tokens, and
nothing here acts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from megatron.core.tensor_parallel.mappings import (
    gather_from_sequence_parallel_region,
    scatter_to_sequence_parallel_region,
)
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.moe.moe_layer import MoELayer
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.transformer.moe.token_dispatcher import MoEAlltoAllTokenDispatcher

from vime_train.megatron._routing_replay import RoutingReplay

if TYPE_CHECKING:
    import torch.distributed as dist
    from jaxtyping import Bool, Float
    from megatron.core.models.gpt import GPTModel
    from torch import Tensor

# Megatron 0.16.1 reads the name without Transformer Engine too, and defines it with it only.
vars(moe_utils).setdefault("te_general_gemm", None)


def adopt_expert_layers(chunk: GPTModel) -> None:
    """Make the layers of experts that Megatron built, as it builds its own kinds alone, `ExpertLayer`s."""
    for layer in chunk.decoder.layers:
        if isinstance(layer.mlp, MoELayer):
            layer.mlp.__class__ = ExpertLayer
            layer.mlp.adopt()


class ExpertLayer(MoELayer):  # type: ignore[misc]
    """A `MoELayer` whose TP ranks share the tokens of the micro-batch among them."""

    def adopt(self) -> None:
        """Complete what Megatron's own constructor made."""
        self._cuts_tokens = self.tp_group.size() > 1 and not self.config.sequence_parallel
        if self._cuts_tokens:
            self.attn_tp_group = _OneRank()
            self.router.tp_cp_group = self.router.cp_group  # TP ranks hold the same tokens, not others
        if self.tp_group.size() > 1:
            # Megatron reduces experts over DP x CP alone where EP is 1; here TP ranks hold other tokens and the same
            # experts, as DP ranks do.
            for parameter in self.experts.parameters():
                parameter.allreduce = False
        self.router.__class__ = _Router
        self.router.router_replay = RoutingReplay()
        if not torch.cuda.is_available():
            self.token_dispatcher.__class__ = _HostDispatcher

    def preprocess(
        self,
        hidden_states: Float[Tensor, "tokens batch hidden"],
        probs: Float[Tensor, "tokens experts"],
        routing_map: Bool[Tensor, "tokens experts"],
    ) -> Any:
        """Keep this rank's share of the tokens, then go on as Megatron does."""
        if self._cuts_tokens:
            hidden_states = scatter_to_sequence_parallel_region(hidden_states, group=self.tp_group)
            probs = scatter_to_sequence_parallel_region(probs, group=self.tp_group)
            routing_map = routing_map.chunk(self.tp_group.size())[self.tp_group.rank()]
        return super().preprocess(hidden_states, probs, routing_map)

    def postprocess(self, output: Tensor, shared_expert_output: Tensor | None) -> Float[Tensor, "tokens batch hidden"]:
        """Bring the shares together again."""
        output = super().postprocess(output, shared_expert_output)
        self.token_dispatcher.probs = None  # its graph leads back to the model, which nothing could free afterwards
        if self._cuts_tokens:
            output = gather_from_sequence_parallel_region(
                output, tensor_parallel_output_grad=False, group=self.tp_group
            )
        return output


class _Router(TopKRouter):  # type: ignore[misc]
    """Megatron multiplies a rank's part of the auxiliary loss by the rank's own places where losses are calculated per
    token. With CP the part is small already: it belongs to all places of the micro-batch, on all ranks that share it.
    """

    def attach_and_log_load_balancing_loss(
        self,
        activation: Tensor,
        aux_loss_coeff: float,
        aux_loss: Tensor,
        aux_loss_name: str,
        reduce_group: dist.ProcessGroup,
        reduce_group_has_dp: bool = False,
        valid_token_count: int | None = None,
    ) -> Any:
        places = activation.shape[0] if valid_token_count is None else valid_token_count
        return super().attach_and_log_load_balancing_loss(
            activation,
            aux_loss_coeff,
            aux_loss,
            aux_loss_name,
            reduce_group,
            reduce_group_has_dp,
            valid_token_count=places * reduce_group.size(),
        )


class _OneRank:
    """What Megatron's layer asks about TP, before it refuses tokens that are not cut: this layer cuts them."""

    def size(self) -> int:
        return 1


class _HostDispatcher(MoEAlltoAllTokenDispatcher):  # type: ignore[misc]
    """Megatron turns counts into numbers when it copies them from the GPU; here they are on the host already."""

    def token_dispatch(self, *args: Any, **kwargs: Any) -> Any:
        for name in ("input_splits", "output_splits"):  # None where there is one rank
            counts = getattr(self, name)
            setattr(self, name, None if counts is None else counts.tolist())
        return super().token_dispatch(*args, **kwargs)
