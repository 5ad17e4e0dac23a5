"""Off-policy sequence masking: leave out failed sequences that the policy has already moved away from.

Law: the decision is one per sequence, made from the whole sequence, so it does not depend on how the sequence was cut;
a mask never changes a denominator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vime_cp._checks import check_at_least, check_sample_index, check_tokens, keep_unmasked
from vime_cp._sequence import sequence_sums, to_tokens

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Num
    from torch import Tensor

    from vime_cp._context_parallel import ContextParallel


def off_policy_sequence_mask(
    log_probs: Float[Tensor, " local"],
    old_log_probs: Float[Tensor, " local"],
    advantages: Float[Tensor, " local"],
    *,
    sample_index: Int[Tensor, " local"],
    num_samples: int,
    delta: float = 1e-4,
    cp: ContextParallel | None = None,
    mask: Num[Tensor, " local"] | None = None,
) -> Float[Tensor, " local"]:
    """0 for tokens of sequences whose advantage is negative and whose mean old - new log-prob is above delta, else 1.

    Multiply the policy loss by it. The advantage of a sequence is the mean over its unmasked tokens.

    Args:
        log_probs: of the policy in training.
        old_log_probs: of the policy that sampled.
        advantages: one per token, equal within a sequence for outcome rewards.
        sample_index: the sequence of each position; -1 for padding.
        num_samples: sequences in the micro-batch, also those of which this rank holds nothing.
        delta: the divergence in nats per token from which a failed sequence is left out.
        cp: the ranks that share the sequences; None where this rank holds them whole.
        mask: not 0 at tokens that count; 0 elsewhere in the result.

    Raises:
        ValueError: shapes, dtypes or devices that differ, or a delta below 0; before the collective.

    Source: DeepSeek-V3.2, arXiv:2512.02556, "Off-Policy Sequence Masking".

    >>> from vime_cp import off_policy_sequence_mask
    >>> new, old, sample_index = torch.tensor([-2.0, -1.0, -2.0]), torch.full((3,), -1.0), torch.tensor([0, 0, 1])
    >>> advantages = torch.tensor([-1.0, -1.0, 1.0])
    >>> off_policy_sequence_mask(new, old, advantages, sample_index=sample_index, num_samples=2, delta=0.4)
    tensor([0., 0., 1.])
    """
    where = "off_policy_sequence_mask"
    check_tokens(where, mask=mask, log_probs=log_probs, old_log_probs=old_log_probs, advantages=advantages)
    check_sample_index(where, sample_index, "log_probs", log_probs)
    check_at_least(where, "delta", delta, 0.0)
    moved = keep_unmasked(old_log_probs.detach(), mask) - keep_unmasked(log_probs.detach(), mask)
    columns = [moved, keep_unmasked(advantages.detach(), mask)]
    divergence, advantage, counts = sequence_sums(columns, mask, sample_index, num_samples, cp, gradient="none")
    kept = 1 - ((advantage < 0) & (divergence > delta * counts)).to(log_probs.dtype)
    return keep_unmasked(to_tokens(kept, sample_index), mask)
