"""One model on this rank: its chunks, and how batches are made for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from vime_train.megatron._cpu import device_scope
from vime_train.megatron._hf_weights import load_weights, local_parameters
from vime_train.megatron._micro_batch import MicroBatchBuilder
from vime_train.megatron._model import ModelChunks, build_model
from vime_train.megatron._rope import inverse_frequencies

if TYPE_CHECKING:
    from vime_train.config import RunConfig
    from vime_train.megatron._architecture import Architecture
    from vime_train.megatron._groups import Groups


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankModel:
    """A model cut by the layout; the policy, the critic, or a frozen one."""

    architecture: Architecture
    chunks: ModelChunks
    builder: MicroBatchBuilder
    groups: Groups

    @classmethod
    def build(cls, architecture: Architecture, groups: Groups, config: RunConfig, *, trained: bool) -> RankModel:
        """The model with weights that are not yet set; a frozen one has no gradients."""
        with device_scope():
            chunks = build_model(architecture, groups, config, trained=trained)
        rotates = not chunks.uses_transformer_engine
        builder = MicroBatchBuilder(
            groups=groups,
            batching=config.batching,
            pad_multiple=chunks.pad_multiple,
            inverse_frequencies=inverse_frequencies(architecture).to(groups.device) if rotates else None,
        )
        return cls(architecture=architecture, chunks=chunks, builder=builder, groups=groups)

    def load(self, directory: str) -> None:
        """Take the weights of a Hugging Face directory; raises as `load_weights`."""
        load_weights(directory, self.architecture, self.chunks, self.groups)

    @torch.no_grad()
    def take(self, other: RankModel) -> None:
        """Take the weights of another model of the same layers; a value head keeps its own."""
        given = local_parameters(other.chunks)
        for name, parameter in local_parameters(self.chunks).items():
            if name != "output_layer.weight" or not self.architecture.value_head:
                parameter.copy_(given[name])

    def with_value_head(self) -> Architecture:
        """These layers as a critic: not tied to an embedding, with one output."""
        return replace(self.architecture, tied_head=False, value_head=True)
