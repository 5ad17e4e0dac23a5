"""What a loss under examination receives: one rank's share of one micro-batch, and facts about the whole step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jaxtyping import Float64
    from torch import Tensor

    from vime_cp import PackedMicroBatch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """What every rank knows about the whole step before it is split.

    Attributes:
        mask_sums: unmasked response tokens of every sample of the step, ``[samples]``.
        rollout_ids: rollout of every sample of the step.
        prompt_ids: prompt of every sample of the step.
        num_microbatches: micro-batches per DP rank.
        dp: number of DP ranks.
        cp: number of CP ranks.
    """

    mask_sums: Float64[Tensor, " samples"]
    rollout_ids: tuple[int, ...]
    prompt_ids: tuple[int, ...]
    num_microbatches: int
    dp: int
    cp: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shard:
    """One rank's share of one micro-batch. Columns are random, fp64 ``[local]``, 0 at padding.

    Under the law "masked values" they are NaN wherever the mask is 0.

    Attributes:
        batch: the packed micro-batch, with mask, sample index and CP rank; its ``cp`` serves real collectives.
        samples: positions of the micro-batch's samples within the step.
        step: facts about the whole step.
        log_probs: of the policy; the check differentiates these, `entropy` and `values`.
        entropy: of the policy.
        values: of a critic.
        old_log_probs: near `log_probs`, on both sides of every usual clip.
        ref_log_probs: of a reference or a teacher.
        rollout_log_probs: near `old_log_probs`.
        advantages: one random number per sample, at each of its tokens.
        returns: what a critic should predict.
        old_values: near `values`.
    """

    batch: PackedMicroBatch
    samples: tuple[int, ...]
    step: Step
    log_probs: Float64[Tensor, " local"]
    entropy: Float64[Tensor, " local"]
    values: Float64[Tensor, " local"]
    old_log_probs: Float64[Tensor, " local"]
    ref_log_probs: Float64[Tensor, " local"]
    rollout_log_probs: Float64[Tensor, " local"]
    advantages: Float64[Tensor, " local"]
    returns: Float64[Tensor, " local"]
    old_values: Float64[Tensor, " local"]


COLUMNS = tuple(Shard.__dataclass_fields__)[3:]
