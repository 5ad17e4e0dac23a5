"""What the last pipeline stage does with its output: the loss of policy, critic or answers, or scoring alone.

Always true: every objective returns Megatron's triple through `vime_cp.megatron_loss`, so the step's gradient is that
of sum over samples of `weights[i] * sum_t mask * loss`, whatever the layout; and every tensor of a log adds up over
micro-batches, CP and DP ranks, except the losses by sample of `SAMPLE_LOSSES`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from vime_cp import log_probs_and_entropy, megatron_loss, sample_sums, sft_loss, weighted_sum
from vime_train.algorithm import LossTerms, loss_terms, value_terms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxtyping import Float
    from torch import Tensor

    from vime_cp import LogProbs
    from vime_train.config import AlgorithmSection, CriticSection
    from vime_train.megatron._groups import Groups
    from vime_train.megatron._micro_batch import MicroBatch

SAMPLE_LOSSES = "sample_losses"
"""Log entry: the unweighted loss of each sample of the micro-batch on this rank, to name samples by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """What Megatron's conventions need to know of a step.

    `step_num_tokens` counts the step's places on all ranks, padding included; None where the loss is not calculated
    per token. Megatron weighs the auxiliary losses of experts by places and divides them by this count.
    """

    groups: Groups
    num_microbatches: int
    step_num_tokens: int | None

    def triple(
        self, partial_sum: Tensor, micro_batch: MicroBatch, log: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """The loss such that Megatron's divisions cancel, its token count, and the log."""
        layout = self.groups.layout
        per_token = self.step_num_tokens is not None
        return megatron_loss(
            partial_sum,
            log=log,
            num_microbatches=self.num_microbatches,
            dp=layout.dp,
            cp=layout.cp,
            calculate_per_token_loss=per_token,
            num_tokens=micro_batch.packed.local_length if per_token else None,
            step_num_tokens=self.step_num_tokens,
        )

    def weigh(self, terms: LossTerms, micro_batch: MicroBatch) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """The triple of a loss per token, with the means that a run reports of it."""
        partial_sum = _weighted(terms.loss, micro_batch)
        log = {
            "loss": partial_sum,
            **{name: _weighted(values, micro_batch) for name, values in terms.means.items()},
            **_weights_and_losses(terms.loss, micro_batch),
        }
        return self.triple(partial_sum, micro_batch, log)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyObjective:
    """The loss that `[algorithm]` names, of the policy at the temperature that it sampled with."""

    scaling: Scaling
    section: AlgorithmSection
    temperature: float

    def __call__(self, micro_batch: MicroBatch, logits: Float[Tensor, "local vocab"]) -> tuple[Tensor, Tensor, Any]:
        """Weighted loss of one micro-batch, with what a run reports of it."""
        scored = score(
            micro_batch,
            logits,
            self.scaling.groups,
            temperature=self.temperature,
            entropy=self.section.entropy_coefficient > 0,
        )
        terms = loss_terms(
            self.section,
            log_probs=scored.log_probs,
            entropy=scored.entropy,
            old_log_probs=micro_batch.old_log_probs,
            advantages=micro_batch.advantages,
            columns=micro_batch.columns,
            packed=micro_batch.packed,
        )
        return self.scaling.weigh(terms, micro_batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticObjective:
    """The loss that `[critic]` names; the model's output is values."""

    scaling: Scaling
    section: CriticSection

    def __call__(self, micro_batch: MicroBatch, logits: Float[Tensor, "local 1"]) -> tuple[Tensor, Tensor, Any]:
        """Weighted loss of one micro-batch."""
        packed = micro_batch.packed
        terms = value_terms(self.section, values=logits[:, 0].float(), columns=micro_batch.columns, packed=packed)
        return self.scaling.weigh(terms, micro_batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedObjective:
    """Cross-entropy of the response tokens."""

    scaling: Scaling

    def __call__(self, micro_batch: MicroBatch, logits: Float[Tensor, "local vocab"]) -> tuple[Tensor, Tensor, Any]:
        """Weighted loss of one micro-batch."""
        scored = score(micro_batch, logits, self.scaling.groups)
        loss = sft_loss(scored.log_probs, mask=micro_batch.packed.mask)
        return self.scaling.weigh(LossTerms(loss=loss, means={}), micro_batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringObjective:
    """No loss: the log-probs of the response tokens, for forward-only passes; or values, of a critic's output."""

    groups: Groups
    temperature: float = 1.0
    values: bool = False

    def __call__(self, micro_batch: MicroBatch, logits: Float[Tensor, "local vocab"]) -> tuple[Tensor, dict[str, Any]]:
        """A loss of 0 and, in the log, the micro-batch with its numbers at logit positions, 0 where masked."""
        if self.values:
            found = torch.where(micro_batch.packed.mask != 0, logits[:, 0].float(), 0.0)
        else:
            found = score(micro_batch, logits, self.groups, temperature=self.temperature).log_probs
        return logits.new_zeros(()), {"scored": (micro_batch, found)}


def score(
    micro_batch: MicroBatch,
    logits: Float[Tensor, "local vocab"],
    groups: Groups,
    *,
    temperature: float = 1.0,
    entropy: bool = False,
) -> LogProbs:
    """Log-prob of the next token at every place, 0 where the mask is 0; the vocabulary may be cut over TP."""
    packed = micro_batch.packed
    group = groups.tp if groups.layout.tp > 1 else None
    return log_probs_and_entropy(
        logits, packed.labels, group=group, mask=packed.mask != 0, temperature=temperature, entropy=entropy
    )


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
