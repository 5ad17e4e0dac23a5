"""Advantages that need more than rewards: those over the tokens of a response, KL in the reward, whitening, a teacher.

They are made once per iteration, before its first step, from whole responses: every CP and TP rank of a replica holds
the same columns and gets the same numbers, so that only the DP group pools moments.

Always true: masked tokens have advantage and return 0; a terminal reward belongs to a response's last unmasked token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from vime_cp import (
    distillation_advantages,
    gae,
    kl,
    pack_micro_batch,
    pack_response,
    reinforce_plus_plus_advantages,
    reinforce_plus_plus_baseline_advantages,
    unpack_response,
    whiten,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

    from vime_cp import Group, PackedMicroBatch
    from vime_train.config import AlgorithmSection
    from vime_train.rollout import RankBatch

    Column = tuple[npt.NDArray[np.float32], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenAdvantages:
    """One array per sample; `returns` is None without a critic. Sums are over this rank's unmasked tokens.

    `kl` is what the rewards were reduced by (before its coefficient), `reverse_kl` the student's to the teacher.
    """

    advantages: Column
    returns: Column | None
    tokens: float
    kl: float | None
    reverse_kl: float | None


def token_advantages(
    batch: RankBatch, section: AlgorithmSection, *, group: Group, device: torch.device
) -> TokenAdvantages:
    """Complete the advantages of a scored batch; collective over the DP group where advantages are whitened.

    Args:
        batch: with `old_log_probs` of the policy that sampled, and in `columns` what the section needs:
            `reference_log_probs`, `teacher_log_probs`, `values`.
        section: which estimator.
        group: the ranks that hold other samples.
        device: where to compute.
    """
    packed = pack_micro_batch(
        [torch.from_numpy(tokens) for tokens in batch.tokens],
        list(batch.response_lengths),
        [torch.from_numpy(mask) for mask in batch.loss_masks],
    )
    columns = {
        name: pack_response([torch.from_numpy(values) for values in column], packed).to(device)
        for name, column in {"old": batch.old_log_probs, "base": batch.advantages, **batch.columns}.items()
    }
    on_device = packed.to(device)
    old = columns["old"]
    penalty = None
    if section.kl_in_reward:
        penalty = kl(old, columns["reference_log_probs"], section.kl.estimator, mask=on_device.mask)
    values, returns = _estimate(batch, section, columns, on_device, penalty)
    if section.whitens:
        values = whiten(values, on_device.mask, group=group)
    reverse_kl = None
    if section.distillation.coefficient > 0:
        toward = distillation_advantages(old, columns["teacher_log_probs"], mask=on_device.mask)
        values = values + section.distillation.coefficient * toward
        reverse_kl = -float(toward.sum())
    return TokenAdvantages(
        advantages=_apart(values, packed),
        returns=None if returns is None else _apart(returns, packed),
        tokens=float(packed.mask.sum()),
        kl=None if penalty is None else float(penalty.sum()),
        reverse_kl=reverse_kl,
    )


def _estimate(
    batch: RankBatch,
    section: AlgorithmSection,
    columns: dict[str, Tensor],
    packed: PackedMicroBatch,
    penalty: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """Advantages, and returns where there is a critic."""
    base, coefficient = columns["base"], section.kl.coefficient
    rewards = torch.from_numpy(batch.rewards).to(base)
    if section.advantage == "gae":
        found = gae(
            rewards, columns["values"], packed, kl=penalty, kl_coef=coefficient, gamma=section.gamma, lam=section.lam
        )
        return found.advantages, found.returns
    if section.advantage == "reinforce_plus_plus":
        values = reinforce_plus_plus_advantages(rewards, packed, kl=penalty, kl_coef=coefficient, gamma=section.gamma)
        return values, None
    if section.advantage == "reinforce_plus_plus_baseline":
        centred = torch.tensor([float(column[0]) for column in batch.advantages]).to(base)
        return reinforce_plus_plus_baseline_advantages(centred, packed, kl=penalty, kl_coef=coefficient), None
    return base, None


def _apart(values: Tensor, packed: PackedMicroBatch) -> Column:
    return tuple(column.numpy() for column in unpack_response(values.cpu(), packed))
