"""What is learnt: the estimator of advantages, the loss, and what is added to it. Every name is one of `vime_cp`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from vime_train.config._section import Count, Fraction, Positive, Section

NonNegative = Annotated[float, Field(ge=0)]
Advantage = Literal["grpo", "dr_grpo", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "gae", "none"]
_GROUP_RELATIVE = ("grpo", "dr_grpo", "rloo", "reinforce_plus_plus_baseline")
_WHITENED = ("reinforce_plus_plus", "reinforce_plus_plus_baseline", "gae")
_DISCOUNTED = ("reinforce_plus_plus", "gae")
_CLIPS = {"policy": (0.2, 0.28), "gspo": (3e-4, 4e-4), "cispo": (1.0, 4.0)}


class KLSection(Section):
    """The penalty for moving away from a reference model.

    In the `loss`, `coefficient` times the estimate is added to every token's loss; `unbiased` weighs it by the ratio of
    the policy to the one that sampled. In the `reward`, it is taken from every token's reward before advantages are
    made, which the estimators over tokens know: `reinforce_plus_plus`, `reinforce_plus_plus_baseline` and `gae`.
    `reference` is a Hugging Face directory; without one it is the policy as it is when reinforcement learning begins,
    and with `reference_every` it becomes the policy of then after every so many iterations (0: it stays).
    """

    coefficient: NonNegative = 0.0
    estimator: Literal["k1", "k2", "k3", "low_variance"] = "k3"
    placement: Literal["loss", "reward"] = "loss"
    unbiased: bool = False
    reference: str | None = None
    reference_every: Count = 0


class CorrectionSection(Section):
    """Importance weights for the difference between the engine's log-probs and the trainer's of the same weights.

    They need `algorithm.old_log_probs = "recompute"`. `low` and `high` bound the ratio: (0, 2) unless told otherwise,
    (0.5, 5) for `icepop`. `level`, `mode` and `veto` belong to `mis`.
    """

    kind: Literal["none", "tis", "icepop", "mis"] = "none"
    low: NonNegative | None = None
    high: NonNegative | None = None
    level: Literal["token", "sequence", "geometric"] = "token"
    mode: Literal["truncate", "mask"] = "mask"
    veto: NonNegative | None = None


class DistillationSection(Section):
    """On-policy distillation: `coefficient` times (teacher's - student's log-prob) is added to every token's advantage.

    `teacher` is a Hugging Face directory with the same vocabulary; without one the reference of `[algorithm.kl]`. It is
    scored in the trainers, cut by their layout, or with `engines` above 0 by so many vLLM engines of its own, which
    serve any architecture that vLLM knows.
    """

    coefficient: NonNegative = 0.0
    teacher: str | None = None
    engines: Count = 0


class AlgorithmSection(Section):
    """The estimator, the loss, and what is added to it.

    `advantage = "none"` learns nothing from rewards: for distillation alone, or `loss = "sft"`.
    `whiten` normalises advantages over all tokens of an iteration; by default where the estimator is defined with it.
    `gamma` and `lam` are those of returns and of GAE. `old_log_probs` are the denominator of ratios: the engine's, or
    recomputed by the trainers before the first step of an iteration.
    With `routing_replay` every step sends a token through the experts that the recomputing pass chose for it.
    `clip_low` and `clip_high` are the loss's own unless given: 0.2 and 0.28 for `policy`, 3e-4 and 4e-4 for `gspo`, 1
    and 4 for `cispo`. `dual_clip` bounds the loss of negative advantages. `off_policy_delta` leaves out failed
    sequences that the policy has moved away from by more nats per token.
    `aggregation = "constant"` divides by `constant_tokens` times the step's rollouts.

    `advantage_function` replaces the estimator: an import path of a function of the rollouts and this section.
    `loss_function` replaces the loss: one number per token of a packed micro-batch, from its log-probs, the old ones,
    and the advantages; what it returns is weighted by `aggregation`.
    """

    advantage: Advantage = "grpo"
    advantage_function: str | None = None
    divide_by_std: bool = True
    whiten: bool | None = None
    gamma: Fraction = 1.0
    lam: Fraction = 1.0
    loss: Literal["policy", "gspo", "cispo", "sft"] = "policy"
    loss_function: str | None = None
    clip_low: NonNegative | None = None
    clip_high: NonNegative | None = None
    dual_clip: Annotated[float, Field(gt=1)] | None = None
    off_policy_delta: NonNegative | None = None
    entropy_coefficient: NonNegative = 0.0
    aggregation: Literal["rollout_mean", "sample_mean", "token_mean", "prompt_mean", "constant"] = "rollout_mean"
    constant_tokens: Positive | None = None
    old_log_probs: Literal["rollout", "recompute"] = "rollout"
    routing_replay: bool = False
    kl: KLSection = KLSection()
    correction: CorrectionSection = CorrectionSection()
    distillation: DistillationSection = DistillationSection()

    @property
    def clips(self) -> tuple[float, float]:
        """`clip_low` and `clip_high`, given or the loss's own."""
        low, high = _CLIPS[self.loss]
        return (low if self.clip_low is None else self.clip_low, high if self.clip_high is None else self.clip_high)

    @property
    def whitens(self) -> bool:
        """Whether advantages are normalised over the iteration."""
        return self.advantage in _WHITENED if self.whiten is None else self.whiten

    @property
    def group_relative(self) -> bool:
        """Whether rewards are compared within groups, so that a group of equal rewards has advantage 0."""
        return self.advantage in _GROUP_RELATIVE

    @property
    def discounts(self) -> bool:
        """Whether the estimator runs over the tokens of a response."""
        return self.advantage in _DISCOUNTED

    @property
    def takes_kl_in_reward(self) -> bool:
        """Whether the estimator has rewards of tokens, from which a KL penalty can be taken."""
        return self.advantage in _WHITENED

    @property
    def has_critic(self) -> bool:
        """Whether a critic is trained besides the policy."""
        return self.advantage == "gae"

    @property
    def needs_reference(self) -> bool:
        """Whether a frozen reference model is scored."""
        distils_from_it = self.distillation.coefficient > 0 and self.distillation.teacher is None
        return self.kl.coefficient > 0 or distils_from_it

    @property
    def needs_token_advantages(self) -> bool:
        """Whether advantages are known only once the trainers have scored the batch."""
        return self.discounts or self.whitens or self.kl_in_reward or self.distillation.coefficient > 0

    @property
    def kl_in_reward(self) -> bool:
        """Whether the KL penalty is part of the rewards."""
        return self.kl.coefficient > 0 and self.kl.placement == "reward"

    @property
    def kl_in_loss(self) -> bool:
        """Whether the KL penalty is part of the loss."""
        return self.kl.coefficient > 0 and self.kl.placement == "loss"


class CriticSection(Section):
    """The value model of `advantage = "gae"`: the policy's layers with a head of one number, trained by Adam.

    It begins as the policy is when reinforcement learning begins, with a head of zeros. `value_clip` bounds how far a
    value may move from the one that advantages were made with before its gradient ends; 0 is no bound. In the first
    `warmup_iterations` it is trained alone, and the policy stays as it is.
    """

    lr: Annotated[float, Field(gt=0)] = 1e-3
    value_clip: NonNegative = 0.2
    warmup_iterations: Count = 0
