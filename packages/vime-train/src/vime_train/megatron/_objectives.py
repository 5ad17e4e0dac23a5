"""What the last pipeline stage does with logits: the policy loss, the supervised loss, or scoring alone.

Always true: every objective returns Megatron's triple through `vime_cp.megatron_loss`, so the step's gradient is that
of sum over samples of `weights[i] * sum_t mask * loss`, whatever the layout; and every tensor of a log adds up over
micro-batches, CP and DP ranks, except the losses by sample of `SAMPLE_LOSSES`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from vime_cp import log_probs_and_entropy, megatron_loss, sample_sums, sft_loss, weighted_sum
from vime_train.algorithm import policy_terms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxtyping import Float
    from torch import Tensor

    from vime_train.config import AlgorithmSection
    from vime_train.megatron._groups import Groups
    from vime_train.megatron._micro_batch import MicroBatch

SAMPLE_LOSSES = "sample_losses"
"""Log entry: the unweighted loss of each sample of the micro-batch on this rank, to name samples by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """What Megatron's conventions need to know of a step."""

    groups: Groups
    num_microbatches: int
    calculate_per_token_loss: bool

    def triple(self, partial_sum: Tensor, log: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """The loss such that Megatron's divisions cancel, its token count, and the log."""
        layout = self.groups.layout
        return megatron_loss(
            partial_sum,
            log=log,
            num_microbatches=self.num_microbatches,
            dp=layout.dp,
            cp=layout.cp,
            calculate_per_token_loss=self.calculate_per_token_loss,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyObjective:
    """The loss that `[algorithm]` names."""

    scaling: Scaling
    section: AlgorithmSection

    def __call__(self, micro_batch: MicroBatch, logits: Float[Tensor, "local vocab"]) -> tuple[Tensor, Tensor, Any]:
        """Weighted loss of one micro-batch, with what a run reports of it."""
        packed = micro_batch.packed
        log_probs = score(micro_batch, logits, self.scaling.groups)
        terms = policy_terms(
            self.section,
            log_probs=log_probs,
            old_log_probs=micro_batch.old_log_probs,
            advantages=micro_batch.advantages,
            packed=packed,
        )
        partial_sum = _weighted(terms.loss, micro_batch)
        return self.scaling.triple(
            partial_sum,
            {
                "loss": partial_sum,
                "clip_fraction": _weighted(terms.clipped.to(log_probs.dtype), micro_batch),
                "approx_kl": _weighted(terms.approx_kl, micro_batch),
                **_weights_and_losses(terms.loss, micro_batch),
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedObjective:
    """Cross-entropy of the response tokens."""

    scaling: Scaling

    def __call__(self, micro_batch: MicroBatch, logits: Float[Tensor, "local vocab"]) -> tuple[Tensor, Tensor, Any]:
        """Weighted loss of one micro-batch."""
        loss = sft_loss(score(micro_batch, logits, self.scaling.groups), mask=micro_batch.packed.mask)
        partial_sum = _weighted(loss, micro_batch)
        return self.scaling.triple(partial_sum, {"loss": partial_sum, **_weights_and_losses(loss, micro_batch)})


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringObjective:
    """No loss: the log-probs of the response tokens, for forward-only passes."""

    groups: Groups

    def __call__(self, micro_batch: MicroBatch, logits: Float[Tensor, "local vocab"]) -> tuple[Tensor, dict[str, Any]]:
        """A loss of 0 and, in the log, the micro-batch with its log-probs at logit positions."""
        return logits.new_zeros(()), {"scored": (micro_batch, score(micro_batch, logits, self.groups))}


def score(micro_batch: MicroBatch, logits: Float[Tensor, "local vocab"], groups: Groups) -> Float[Tensor, " local"]:
    """Log-prob of the next token at every place, 0 where the mask is 0; the vocabulary may be cut over TP."""
    packed = micro_batch.packed
    group = groups.tp if groups.layout.tp > 1 else None
    return log_probs_and_entropy(logits, packed.labels, group=group, mask=packed.mask != 0).log_probs


def _weighted(values: Tensor, micro_batch: MicroBatch) -> Tensor:
    packed = micro_batch.packed
    return weighted_sum(values, packed.mask, micro_batch.weights, packed.sample_index)


def _weights_and_losses(loss: Tensor, micro_batch: MicroBatch) -> dict[str, Tensor]:
    packed = micro_batch.packed
    return {
        "weight": _weighted(torch.ones_like(loss), micro_batch),
        "tokens": packed.mask.sum(),
        SAMPLE_LOSSES: sample_sums(loss.detach(), packed.mask, packed.sample_index, packed.num_samples),
    }
