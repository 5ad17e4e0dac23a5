"""What is trained and how it is cut: the model, the layout, the micro-batches."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from vime_train.config._section import Positive, Section


class ModelSection(Section):
    """Which model is trained.

    `path` is a Hugging Face directory. Without one the program makes a small Qwen3 model of the sizes below, with a
    character tokenizer, and saves it in the run directory. With `num_experts` it is a Qwen3-MoE model: every layer has
    that many experts of `moe_intermediate_size` columns each, and a token goes through `num_experts_per_tok` of them.
    """

    path: str | None = None
    hidden_size: Positive = 64
    intermediate_size: Positive = 192
    num_hidden_layers: Positive = 2
    num_attention_heads: Positive = 4
    num_key_value_heads: Positive = 2
    head_dim: Positive = 32
    max_position_embeddings: Positive = 512
    init_std: Annotated[float, Field(gt=0)] = 0.1
    num_experts: Positive | None = None
    num_experts_per_tok: Positive = 2
    moe_intermediate_size: Positive = 64


class LayoutSection(Section):
    """How the trainer is cut across ranks; every field counts ranks or stages.

    `ep` spreads the experts of a model over that many of the dp * cp * tp ranks of a stage: it divides that number and
    needs no ranks of its own. Each expert is whole on its rank, also where `tp` cuts everything else.
    """

    dp: Positive = 2
    cp: Positive = 1
    tp: Positive = 1
    pp: Positive = 1
    vpp: Positive = 1
    ep: Positive = 1
    microbatch_group_size_per_vp_stage: Positive | None = None

    @property
    def world_size(self) -> int:
        """Trainer ranks in all."""
        return self.dp * self.cp * self.tp * self.pp


class BatchingSection(Section):
    """How samples become micro-batches; the names are those of `vime_schedule.build_dp_schedule`.

    Without an `objective` it is "balanced", and "lockstep" where experts are spread over ranks (`layout.ep`), which
    then wait for each other at every micro-batch.
    """

    max_tokens_per_gpu: Positive = 4096
    forward_max_tokens_per_gpu: Positive | None = None
    sequence_align: Positive = 1
    pack_align: Positive = 1
    objective: Literal["step", "lockstep", "balanced", "pipeline"] | None = None
    oversize: Literal["alone", "drop", "error"] = "error"
    shortage: Literal["error", "fill"] = "fill"
