"""Discounted returns and generalised advantages of whole responses, one row each.

Laws
- Masked steps are no actions: the recursion passes over them as if they were not there, and they get exactly 0.
- Results carry no graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from vime_cp._checks import check_at_least

from ._scan import discounted_suffix_sums

if TYPE_CHECKING:
    from jaxtyping import Float, Int64, Num
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Advantages:
    """Advantage and return (what a critic should predict) of every token, in the shape of the input, without graph."""

    advantages: Tensor
    returns: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSteps:
    """Where each row's unmasked steps stand when moved together to the row's start.

    Attributes:
        index: new place of each step; the extra last place for masked steps.
        counts: unmasked steps per row.
    """

    index: Int64[Tensor, "batch time"]
    counts: Int64[Tensor, " batch"]

    @classmethod
    def of(cls, mask: Num[Tensor, "batch time"]) -> ActionSteps:
        """Number the unmasked steps of each row."""
        kept = mask != 0
        order = kept.cumsum(1)
        return cls(index=torch.where(kept, order - 1, mask.shape[1]), counts=kept.sum(1))

    def together(self, x: Float[Tensor, "batch time"]) -> Float[Tensor, "batch time"]:
        """Unmasked values at the start of each row, zeros after them."""
        return x.new_zeros(x.shape[0], x.shape[1] + 1).scatter(1, self.index, x)[:, :-1]

    def apart(self, x: Float[Tensor, "batch time"]) -> Float[Tensor, "batch time"]:
        """Inverse of `together`: every value back in its step, zeros at masked steps."""
        return F.pad(x, (0, 1)).gather(1, self.index)


def discounted_returns(
    rewards: Float[Tensor, "batch time"], *, gamma: float = 1.0, mask: Num[Tensor, "batch time"] | None = None
) -> Float[Tensor, "batch time"]:
    """G_t = r_t + gamma G_{t+1} along each row, over unmasked steps.

    Args:
        rewards: reward of each step; rows shorter than the longest end in zeros or are masked there.
        gamma: discount per unmasked step, from 0 to 1.
        mask: not 0 at steps that are actions.

    Raises:
        ValueError: shapes that differ or are not ``[batch, time]``, or a discount out of range.

    Source: Sutton and Barto, "Reinforcement Learning", 2nd edition, equation 3.8.

    >>> from vime_cp import discounted_returns
    >>> discounted_returns(torch.tensor([[0.0, 0.0, 1.0]]), gamma=0.5)
    tensor([[0.2500, 0.5000, 1.0000]])
    """
    _check("discounted_returns", rewards, gamma=gamma, mask=mask)
    if mask is None:
        return discounted_suffix_sums(rewards, gamma)
    steps = ActionSteps.of(mask)
    return steps.apart(discounted_suffix_sums(steps.together(rewards.detach()), gamma))


def generalized_advantages(
    rewards: Float[Tensor, "batch time"],
    values: Float[Tensor, "batch time"],
    *,
    gamma: float = 1.0,
    lam: float = 1.0,
    mask: Num[Tensor, "batch time"] | None = None,
) -> Advantages:
    """A_t = d_t + gamma lam A_{t+1} with d_t = r_t + gamma V_{t+1} - V_t along each row; returns are A + V.

    The value after the last step is 0: responses end.

    Args:
        rewards: reward of each step; rows shorter than the longest end in zeros or are masked there.
        values: the critic's value of each step, as `rewards`.
        gamma: discount per unmasked step, from 0 to 1.
        lam: lambda, from 0 (one-step errors) to 1 (whole returns).
        mask: not 0 at steps that are actions.

    Raises:
        ValueError: shapes that differ or are not ``[batch, time]``, or a factor out of range.

    Source: GAE, arXiv:1506.02438, equation 16.

    >>> from vime_cp import generalized_advantages
    >>> generalized_advantages(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 0.5]])).advantages
    tensor([[0.5000, 0.5000]])
    """
    _check("generalized_advantages", rewards, gamma=gamma, mask=mask, values=values, lam=lam)
    rewards, values = rewards.detach(), values.detach()
    steps = None if mask is None else ActionSteps.of(mask)
    if steps is not None:
        rewards, values = steps.together(rewards), steps.together(values)
    errors = rewards - values
    errors[:, :-1].add_(values[:, 1:], alpha=gamma)
    advantages = discounted_suffix_sums(errors, gamma * lam)
    returns = torch.add(advantages, values, out=errors)  # fresh memory costs more than the sum
    if steps is not None:
        advantages, returns = steps.apart(advantages), steps.apart(returns)
    return Advantages(advantages=advantages, returns=returns)


def _check(
    where: str, rewards: Tensor, *, gamma: float, mask: Tensor | None, values: Tensor | None = None, lam: float = 0.0
) -> None:
    if rewards.dim() != 2 or not rewards.is_floating_point():
        raise ValueError(
            f"{where}: rewards has shape {tuple(rewards.shape)} and dtype {rewards.dtype}: "
            f"give floating-point [batch, time], one row per response"
        )
    for name, tensor in (("values", values), ("mask", mask)):
        if tensor is not None and (tensor.shape != rewards.shape or tensor.device != rewards.device):
            raise ValueError(
                f"{where}: {name} has shape {tuple(tensor.shape)} on {tensor.device} but rewards has "
                f"{tuple(rewards.shape)} on {rewards.device}: give one entry per step of every response"
            )
    if values is not None and values.dtype != rewards.dtype:
        raise ValueError(f"{where}: values is {values.dtype} but rewards is {rewards.dtype}: convert one of them")
    check_discount(where, "gamma", gamma)
    check_discount(where, "lam", lam)


def check_discount(where: str, name: str, value: float) -> None:
    """Raise ValueError unless the factor lies in [0, 1]."""
    check_at_least(where, name, value, 0.0)
    if value > 1:
        raise ValueError(f"{where}: {name} is {value}: give a factor from 0 to 1")
