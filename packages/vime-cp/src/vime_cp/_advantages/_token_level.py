"""Token-level advantages of a packed micro-batch whose responses may be cut over CP ranks: GAE and REINFORCE++.

One collective gathers the columns of all responses, the recursion runs on whole responses, and each rank takes its own
positions of the result.

Laws
- Every rank of any layout gets the numbers of the uncut response; the reward belongs to its last unmasked token, on
  whichever rank that lies.
- Masked tokens are no actions and get exactly 0; a fully masked response gets 0 everywhere.
- Actor and critic see the same token rewards, KL penalty included, since one function makes both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from vime_cp._checks import check_tokens, keep_unmasked
from vime_cp._columns import gather_responses
from vime_cp._sequence import to_tokens

from ._returns import Advantages, check_discount, discounted_returns, generalized_advantages

if TYPE_CHECKING:
    from jaxtyping import Float, Num
    from torch import Tensor

    from vime_cp._packing import PackedMicroBatch


def gae(
    rewards: Float[Tensor, " samples"],
    values: Float[Tensor, " local"],
    micro_batch: PackedMicroBatch,
    *,
    kl: Float[Tensor, " local"] | None = None,
    kl_coef: float = 0.0,
    gamma: float = 1.0,
    lam: float = 1.0,
    mask: Num[Tensor, " local"] | None = None,
) -> Advantages:
    """Generalised advantages and returns, with the reward at the last unmasked token and -kl_coef * kl at every one.

    Args:
        rewards: reward of each sample.
        values: the critic's value at each local position.
        micro_batch: the micro-batch that the positions belong to.
        kl: estimate of KL(policy || reference) at each local position; None is none.
        kl_coef: weight of the KL penalty.
        gamma: discount per unmasked token, from 0 to 1.
        lam: lambda of GAE, from 0 to 1.
        mask: not 0 at tokens that are actions; None is the micro-batch's own mask.

    Returns:
        Advantages and returns ``[local]``.

    Raises:
        ValueError: shapes, dtypes or devices that differ, or factors out of range; before the collective.

    Source: GAE, arXiv:1506.02438, equation 16; token rewards as in InstructGPT, arXiv:2203.02155, section 3.5.

    >>> from vime_cp import gae, pack_micro_batch
    >>> batch = pack_micro_batch([torch.tensor([5, 6, 7])], [2])
    >>> gae(torch.tensor([1.0]), torch.zeros(3), batch, gamma=0.5).advantages
    tensor([0.5000, 1.0000, 0.0000])
    """
    where = "gae"
    check_discount(where, "gamma", gamma)
    check_discount(where, "lam", lam)
    mask = micro_batch.mask if mask is None else mask
    _check(where, rewards, micro_batch, mask, values=values, kl=kl)
    penalty = torch.zeros_like(values) if kl is None else -kl_coef * kl
    dense, dense_mask = _whole_responses([values, penalty], mask, micro_batch)
    token_rewards = _add_at_last(dense[1], dense_mask, rewards)
    result = generalized_advantages(token_rewards, dense[0], gamma=gamma, lam=lam, mask=dense_mask)
    return Advantages(
        advantages=_own_positions(result.advantages, micro_batch), returns=_own_positions(result.returns, micro_batch)
    )


def reinforce_plus_plus_advantages(
    rewards: Float[Tensor, " samples"],
    micro_batch: PackedMicroBatch,
    *,
    kl: Float[Tensor, " local"] | None = None,
    kl_coef: float = 0.0,
    gamma: float = 1.0,
    mask: Num[Tensor, " local"] | None = None,
) -> Float[Tensor, " local"]:
    """Discounted return of -kl_coef * kl plus the reward at the last unmasked token; whiten it over the step.

    Arguments and errors are those of `gae`. REINFORCE++ normalises over the global batch: `whiten` over DP x CP.

    Source: REINFORCE++, arXiv:2501.03262, section 3.

    >>> from vime_cp import pack_micro_batch, reinforce_plus_plus_advantages
    >>> batch = pack_micro_batch([torch.tensor([5, 6, 7])], [2])
    >>> reinforce_plus_plus_advantages(torch.tensor([1.0]), batch, kl=torch.ones(3), kl_coef=0.25)
    tensor([0.5000, 0.7500, 0.0000])
    """
    where = "reinforce_plus_plus_advantages"
    check_discount(where, "gamma", gamma)
    mask = micro_batch.mask if mask is None else mask
    penalty = torch.zeros(mask.shape, dtype=rewards.dtype, device=rewards.device) if kl is None else -kl_coef * kl
    _check(where, rewards, micro_batch, mask, kl=penalty)
    dense, dense_mask = _whole_responses([penalty], mask, micro_batch)
    token_rewards = _add_at_last(dense[0], dense_mask, rewards)
    return _own_positions(discounted_returns(token_rewards, gamma=gamma, mask=dense_mask), micro_batch)


def reinforce_plus_plus_baseline_advantages(
    advantages: Float[Tensor, " samples"],
    micro_batch: PackedMicroBatch,
    *,
    kl: Float[Tensor, " local"] | None = None,
    kl_coef: float = 0.0,
    mask: Num[Tensor, " local"] | None = None,
) -> Float[Tensor, " local"]:
    """Group-centred reward minus kl_coef * kl at every unmasked token; whiten it over the step. No collective.

    Args:
        advantages: `dr_grpo_advantages` of each sample, whose baseline is the group's mean.
        micro_batch: the micro-batch that the positions belong to.
        kl: estimate of KL(policy || reference) at each local position; None is none.
        kl_coef: weight of the KL penalty.
        mask: not 0 at tokens that are actions; None is the micro-batch's own mask.

    Raises:
        ValueError: shapes, dtypes or devices that differ.

    Source: REINFORCE++ with baseline, arXiv:2501.03262, section 3.

    >>> from vime_cp import pack_micro_batch, reinforce_plus_plus_baseline_advantages
    >>> batch = pack_micro_batch([torch.tensor([5, 6, 7])], [2])
    >>> reinforce_plus_plus_baseline_advantages(torch.tensor([1.0]), batch)
    tensor([1., 1., 0.])
    """
    mask = micro_batch.mask if mask is None else mask
    penalty = torch.zeros(mask.shape, dtype=advantages.dtype, device=advantages.device) if kl is None else -kl_coef * kl
    _check("reinforce_plus_plus_baseline_advantages", advantages, micro_batch, mask, kl=penalty)
    return keep_unmasked(to_tokens(advantages.detach(), micro_batch.sample_index) + penalty.detach(), mask)


def _whole_responses(columns: list[Tensor], mask: Tensor, micro_batch: PackedMicroBatch) -> tuple[list[Tensor], Tensor]:
    """Columns as ``[samples, longest response]`` on every rank, 0 where masked or beyond the end, and their mask."""
    kept = [keep_unmasked(column.detach(), mask) for column in columns]
    local = torch.stack([*kept, (mask != 0).to(columns[0].dtype)], dim=1)
    responses = gather_responses(local, micro_batch, gradient="none")
    if not responses:
        return [local.new_zeros(0, 1)] * len(columns), local.new_zeros(0, 1)
    dense = torch.nn.utils.rnn.pad_sequence(responses, batch_first=True)
    *whole, whole_mask = dense.unbind(-1)
    return whole, whole_mask


def _add_at_last(token_rewards: Tensor, mask: Tensor, rewards: Tensor) -> Tensor:
    """Token rewards with each row's reward added at its last unmasked step; nowhere if there is none."""
    time = mask.shape[1]
    if time == 0:
        return token_rewards
    steps = torch.arange(1, time + 1, device=mask.device)
    last = torch.where(mask != 0, steps, 0).amax(1)
    # A fully masked row gets its reward at step 0, which is masked and passed over like all others.
    place = (last - 1).clamp_min(0)
    return token_rewards.scatter_add(1, place[:, None], rewards.detach().to(token_rewards.dtype)[:, None])


def _own_positions(dense: Tensor, micro_batch: PackedMicroBatch) -> Tensor:
    """This rank's local positions of ``[samples, time]``; 0 where nothing is scored."""
    parts = [row[:length] for row, length in zip(dense, micro_batch.response_lengths, strict=True)]
    return torch.cat([*parts, dense.new_zeros(1)])[micro_batch.responses.at_place]


def _check(where: str, rewards: Tensor, micro_batch: PackedMicroBatch, mask: Tensor, **columns: Tensor | None) -> None:
    check_tokens(where, mask=mask, **columns)
    given = [column for column in columns.values() if column is not None]
    if given[0].shape != micro_batch.mask.shape or given[0].device != micro_batch.mask.device:
        raise ValueError(
            f"{where}: {next(iter(columns))} has shape {tuple(given[0].shape)} on {given[0].device} but the "
            f"micro-batch holds {tuple(micro_batch.mask.shape)} on {micro_batch.mask.device}: "
            f"give one value per place of this rank"
        )
    if rewards.shape != (micro_batch.num_samples,) or rewards.device != micro_batch.mask.device:
        raise ValueError(
            f"{where}: rewards has shape {tuple(rewards.shape)} on {rewards.device} but the micro-batch has "
            f"{micro_batch.num_samples} samples on {micro_batch.mask.device}: give one number per sample"
        )
