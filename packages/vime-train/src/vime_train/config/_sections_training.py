"""How it is trained: the estimator and the loss, the optimizer, the steps."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, JsonValue

from vime_train.config._section import Fraction, Positive, Section


class AlgorithmSection(Section):
    """The estimator and the loss; each name is one of `vime_cp`.

    `advantage_function` replaces the estimator: an import path of a function of the rollouts and this section.
    `loss_function` replaces the loss: one number per token of a packed micro-batch, from its log-probs, the old ones,
    and the advantages; what it returns is weighted by `aggregation`.
    """

    advantage: Literal["grpo"] = "grpo"
    advantage_function: str | None = None
    divide_by_std: bool = True
    loss: Literal["policy"] = "policy"
    loss_function: str | None = None
    clip_low: Annotated[float, Field(ge=0)] = 0.2
    clip_high: Annotated[float, Field(ge=0)] = 0.28
    aggregation: Literal["rollout_mean", "sample_mean", "token_mean", "prompt_mean"] = "rollout_mean"
    old_log_probs: Literal["rollout", "recompute"] = "rollout"


class HooksSection(Section):
    """Functions that every trainer rank calls with its batch, in order; import paths.

    They may return a batch with other columns (advantages, masks), or None to leave it as it is. `before_log_probs`
    sees the batch before any pass over it, `before_train_step` before every optimizer step, with the step's number in
    the batch. A hook must do the same on every rank that shares samples.
    """

    before_log_probs: tuple[str, ...] = ()
    before_train_step: tuple[str, ...] = ()


class OptimizerSection(Section):
    """Adam and its schedule. Learning rates of the RL part; the supervised part has its own.

    Any other field of Megatron's `OptimizerConfig` may stand here under its own name: see `native`.
    """

    model_config = ConfigDict(extra="allow")

    lr: Annotated[float, Field(gt=0)] = 3e-4
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

    A step whose gradients are not finite is skipped; `max_skipped_steps` of them in a row end the run.
    """

    iterations: Positive = 40
    global_batch_size: Positive = 128
    max_skipped_steps: Positive = 8
    calculate_per_token_loss: bool = False
