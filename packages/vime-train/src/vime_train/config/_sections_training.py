"""How it is trained: hooks, the optimizer and its learning rate, the steps."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, JsonValue

from vime_train.config._section import Count, Fraction, Positive, Section


class HooksSection(Section):
    """Functions that every trainer rank calls, in order; import paths.

    `before_model` is called once, with the run and the rank, when the process groups stand and before the model is
    built. The others are called with the rank's batch, and may return one with other columns (advantages, masks), or
    None to leave it as it is: `before_log_probs` before any pass over the batch, `before_train_step` before every
    optimizer step, with the step's number in the batch. They must do the same on every rank that shares samples.
    """

    before_model: tuple[str, ...] = ()
    before_log_probs: tuple[str, ...] = ()
    before_train_step: tuple[str, ...] = ()


class OptimizerSection(Section):
    """Adam and its schedule. Learning rates of the RL part; the supervised part has its own.

    The rate rises over the first `warmup_rollouts`, then stays (`constant`) or falls to `min_lr` when `decay_rollouts`
    are done, by default at the end of the run. Rollouts are counted as generated, whatever a step's size.

    Any other field of Megatron's `OptimizerConfig` may stand here under its own name: see `native`.
    """

    model_config = ConfigDict(extra="allow")

    lr: Annotated[float, Field(gt=0)] = 3e-4
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_rollouts: Count = 0
    decay_rollouts: Positive | None = None
    min_lr: Annotated[float, Field(ge=0)] = 0.0
    adam_beta1: Fraction = 0.9
    adam_beta2: Fraction = 0.98
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    clip_grad: Annotated[float, Field(gt=0)] = 1.0

    @property
    def native(self) -> dict[str, JsonValue]:
        """The other fields of Megatron's `OptimizerConfig` that were given, checked at launch by name and type."""
        return dict(self.model_extra or {})


class TrainSection(Section):
    """How long to train, and how many rollouts make one optimizer step.

    `epochs`, instead of `iterations`, is the length in passes over the training problems, where these have an end.

    A step whose gradients are not finite is skipped; `max_skipped_steps` of them in a row end the run.

    `router_aux_loss_coefficient` weighs the loss that keeps the experts of a model evenly used: the mean over
    micro-batches of that of each (arXiv:2101.03961, equation 4), so the plan has a small say in it. 0: none.
    """

    iterations: Positive = 40
    epochs: Positive | None = None
    global_batch_size: Positive = 128
    max_skipped_steps: Positive = 8
    calculate_per_token_loss: bool = False
    router_aux_loss_coefficient: Annotated[float, Field(ge=0)] = 0.0
