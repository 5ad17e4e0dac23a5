"""How per-token losses of one optimizer step become one number: a weight per sample, fixed before the batch is split.

Law: with ``w = sample_weights(...)`` of the whole step,

    J = sum_i w_i sum_t mask_it * loss_it

is a plain sum, so any split over micro-batches, DP and CP ranks adds up to the same J. Fully masked samples,
rollouts and prompts contribute exactly 0, and nothing is ever divided by a count of zero.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from jaxtyping import Float64, Shaped
    from torch import Tensor


class Aggregation(StrEnum):
    """What a step's loss is a mean of. D denotes the unmasked tokens of a unit, G the number of units."""

    ROLLOUT_MEAN = "rollout_mean"
    """Mean over rollouts of the token mean within each: siblings of one rollout share ``1 / (G * D)``."""
    SAMPLE_MEAN = "sample_mean"
    """Mean over samples of the token mean within each."""
    TOKEN_MEAN = "token_mean"
    """Mean over all unmasked tokens of the step."""
    PROMPT_MEAN = "prompt_mean"
    """Mean over prompts of the token mean within each prompt's samples."""
    CONSTANT = "constant"
    """Sum over all unmasked tokens, divided by a constant (Dr.GRPO: number of rollouts times the longest response)."""


def sample_weights(
    aggregation: Aggregation | str,
    mask_sums: Shaped[Tensor, " samples"] | Sequence[float],
    *,
    rollout_ids: Sequence[Hashable] | None = None,
    prompt_ids: Sequence[Hashable] | None = None,
    constant: float | None = None,
    count_masked: bool = False,
) -> Float64[Tensor, " samples"]:
    """Weight of every sample of one optimizer step, over all ranks, before the step is cut into micro-batches.

    Args:
        aggregation: which mean; see `Aggregation`.
        mask_sums: sum of each sample's whole loss mask, never of a CP slice of it.
        rollout_ids: the rollout of each sample; None means that every sample is a rollout of its own.
        prompt_ids: the prompt of each sample; needed by ``prompt_mean``.
        constant: the divisor of the whole step; needed by ``constant``.
        count_masked: whether units without an unmasked token count in the number of units G.

    Returns:
        fp64 weights on the device of ``mask_sums``; 0 for samples without an unmasked token.

    Raises:
        ValueError: ids of the wrong number or None, negative or non-finite mask sums, a missing or unused argument.

    >>> from vime_cp import sample_weights
    >>> sample_weights("rollout_mean", [3, 1, 2], rollout_ids=["a", "a", "b"]).tolist()
    [0.125, 0.125, 0.25]
    """
    kind = _parse(aggregation)
    sums = torch.as_tensor(mask_sums, dtype=torch.float64)
    _check_mask_sums(sums)
    _check_arguments(kind, constant=constant, prompt_ids=prompt_ids)
    if kind is Aggregation.CONSTANT and constant is not None:
        return _where_positive(sums, torch.full_like(sums, 1.0 / constant))
    units = _units(kind, len(sums), rollout_ids, prompt_ids).to(sums.device)
    if not len(sums):
        return sums
    unit_sums = sums.new_zeros(len(sums)).index_add(0, units, sums)
    num_units = units.max() + 1 if count_masked else (unit_sums > 0).sum()
    return _where_positive(sums, 1.0 / (num_units * unit_sums[units]))


def _units(
    kind: Aggregation,
    num_samples: int,
    rollout_ids: Sequence[Hashable] | None,
    prompt_ids: Sequence[Hashable] | None,
) -> Tensor:
    """Index of the unit (rollout, sample, prompt, or whole step) of each sample, numbered by first appearance."""
    if kind is Aggregation.TOKEN_MEAN:
        return torch.zeros(num_samples, dtype=torch.int64)
    if kind is Aggregation.ROLLOUT_MEAN and rollout_ids is not None:
        return _number("rollout_ids", rollout_ids, num_samples)
    if kind is Aggregation.PROMPT_MEAN and prompt_ids is not None:
        return _number("prompt_ids", prompt_ids, num_samples)
    return torch.arange(num_samples)


def _number(name: str, ids: Sequence[Hashable], num_samples: int) -> Tensor:
    values = list(ids)
    if len(values) != num_samples:
        raise ValueError(
            f"sample_weights: {name} has {len(values)} entries for {num_samples} samples: give one per sample"
        )
    if any(isinstance(value, torch.Tensor) for value in values):
        raise ValueError(f"sample_weights: {name} holds tensors, which hash by identity: pass {name}.tolist()")
    missing = [position for position, value in enumerate(values) if value is None]
    if missing:
        raise ValueError(
            f"sample_weights: {name} is None at positions {missing[:8]}: give every sample an id, or pass no ids at all"
        )
    first: dict[Hashable, int] = {}
    return torch.tensor([first.setdefault(value, len(first)) for value in values], dtype=torch.int64)


def _where_positive(sums: Tensor, weights: Tensor) -> Tensor:
    """Weights of samples with an unmasked token and 0 for the others, so that 1/0 never leaves this module."""
    return torch.where(sums > 0, weights, torch.zeros_like(weights))


def _parse(aggregation: Aggregation | str) -> Aggregation:
    try:
        return Aggregation(aggregation)
    except ValueError:
        raise ValueError(
            f"sample_weights: aggregation is {aggregation!r}: give one of {[a.value for a in Aggregation]}"
        ) from None


def _check_mask_sums(sums: Tensor) -> None:
    if sums.dim() != 1:
        raise ValueError(
            f"sample_weights: mask_sums has shape {tuple(sums.shape)}: give one number per sample, [samples]"
        )
    wrong = torch.nonzero(~(torch.isfinite(sums) & (sums >= 0))).flatten().tolist()
    if wrong:
        raise ValueError(
            f"sample_weights: mask_sums is negative or not finite at positions {wrong[:8]}: "
            f"give the sum of each sample's loss mask"
        )


def _check_arguments(kind: Aggregation, *, constant: float | None, prompt_ids: Sequence[Hashable] | None) -> None:
    if (constant is not None) != (kind is Aggregation.CONSTANT):
        raise ValueError(
            f"sample_weights: constant is {constant!r} with aggregation {kind.value!r}: "
            f"give a constant with aggregation 'constant', and with no other"
        )
    if constant is not None and not (constant > 0 and constant != float("inf")):
        raise ValueError(f"sample_weights: constant is {constant!r}: give the divisor of the step, finite and above 0")
    if kind is Aggregation.PROMPT_MEAN and prompt_ids is None:
        raise ValueError(
            "sample_weights: prompt_ids is None with aggregation 'prompt_mean': give the prompt of each sample"
        )
