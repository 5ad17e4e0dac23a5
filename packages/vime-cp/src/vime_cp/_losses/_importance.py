"""Importance corrections for tokens that the engine sampled with probabilities other than the trainer's own.

Laws
- Weights carry no graph, and are exactly 0 at masked positions.
- A correction never changes a denominator: losses are weighted with the sample weights of the original mask.
- Sequence levels see the whole sequence, so weights do not depend on how it was cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from vime_cp._checks import check_at_least, check_sample_index, check_tokens, keep_unmasked
from vime_cp._sequence import sequence_sums, to_tokens

from ._policy import safe_ratio

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Num
    from torch import Tensor

    from vime_cp._context_parallel import ContextParallel

Level = Literal["token", "sequence", "geometric"]
Mode = Literal["truncate", "mask"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportanceWeights:
    """Multiply a policy loss by `weights`; the rest is for reports.

    Attributes:
        weights: the corrected ratio of each token; 0 where the token was rejected or is masked.
        ratio: train / rollout probability before the correction, of the token or of its sequence.
        bounded: True at unmasked tokens whose ratio lay outside the bounds: truncated or rejected.
    """

    weights: Float[Tensor, " local"]
    ratio: Float[Tensor, " local"]
    bounded: Bool[Tensor, " local"]


def tis(
    train_log_probs: Float[Tensor, " local"],
    rollout_log_probs: Float[Tensor, " local"],
    *,
    low: float = 0.0,
    high: float = 2.0,
    mask: Num[Tensor, " local"] | None = None,
) -> ImportanceWeights:
    """Truncated importance sampling: weight = clip(exp(train_log_probs - rollout_log_probs), low, high).

    Args:
        train_log_probs: of the trainer for the weights that sampled, that is, old and not current log-probs.
        rollout_log_probs: as the engine reported them while sampling.
        low: smallest weight.
        high: largest weight.
        mask: not 0 at tokens that count.

    Raises:
        ValueError: shapes, dtypes or devices that differ, or bounds out of order.

    Source: F. Yao et al., "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training", 2025.

    >>> from vime_cp import tis
    >>> tis(torch.tensor([0.0, -1.0]), torch.tensor([-1.0, -1.0])).weights
    tensor([2., 1.])
    """
    _check_pair("tis", train_log_probs, rollout_log_probs, low, high, mask)
    return _bound(_log_ratio(train_log_probs, rollout_log_probs, mask), low, high, "truncate", mask)


def icepop(
    train_log_probs: Float[Tensor, " local"],
    rollout_log_probs: Float[Tensor, " local"],
    *,
    low: float = 0.5,
    high: float = 5.0,
    mask: Num[Tensor, " local"] | None = None,
) -> ImportanceWeights:
    """IcePop: weight = ratio where it lies within [low, high], else 0; ratio = exp(train - rollout log-probs).

    Arguments and errors are those of `tis`.

    Source: Ling Team, "Every Step Evolves", arXiv:2510.18855, section on IcePop.

    >>> from vime_cp import icepop
    >>> icepop(torch.tensor([0.0, -1.0]), torch.tensor([-9.0, -1.0])).weights
    tensor([0., 1.])
    """
    _check_pair("icepop", train_log_probs, rollout_log_probs, low, high, mask)
    return _bound(_log_ratio(train_log_probs, rollout_log_probs, mask), low, high, "mask", mask)


def mis(
    train_log_probs: Float[Tensor, " local"],
    rollout_log_probs: Float[Tensor, " local"],
    *,
    level: Level = "token",
    mode: Mode = "mask",
    low: float = 0.0,
    high: float = 2.0,
    veto: float | None = None,
    sample_index: Int[Tensor, " local"] | None = None,
    num_samples: int | None = None,
    cp: ContextParallel | None = None,
    mask: Num[Tensor, " local"] | None = None,
) -> ImportanceWeights:
    """Masked importance sampling at a chosen level: token ratio, product over the sequence, or geometric mean.

    With l = train_log_probs - rollout_log_probs over unmasked tokens the ratio is exp(l) per token, exp(sum l) per
    sequence, or exp(mean l) per sequence. "truncate" clips it to [low, high]; "mask" rejects what lies outside.

    Args:
        train_log_probs: of the trainer for the weights that sampled.
        rollout_log_probs: as the engine reported them while sampling.
        level: "token", "sequence" (product) or "geometric" (mean).
        mode: "truncate" or "mask".
        low: smallest ratio that is kept.
        high: largest ratio that is kept.
        veto: reject whole sequences that hold an unmasked token whose own ratio is below this; None never does.
        sample_index: the sequence of each position, -1 for padding; needed by sequence levels and by ``veto``.
        num_samples: sequences in the micro-batch; needed with ``sample_index``.
        cp: the ranks that share the sequences; None where this rank holds them whole.
        mask: not 0 at tokens that count.

    Raises:
        ValueError: shapes, dtypes or devices that differ, bounds out of order, an unknown level or mode, or a missing
            ``sample_index``; before the collective.

    Source: J. Liu, Y. Li et al., "When Speed Kills Stability: Demystifying RL Collapse from the Training-Inference
    Mismatch", 2025.

    >>> from vime_cp import mis
    >>> rollout = torch.tensor([-1.0, -1.0, -1.0])
    >>> mis(rollout + 0.5, rollout, level="sequence", sample_index=torch.tensor([0, 0, 1]), num_samples=2).weights
    tensor([0.0000, 0.0000, 1.6487])
    """
    where = "mis"
    _check_pair(where, train_log_probs, rollout_log_probs, low, high, mask)
    for name, value, choices in (("level", level, get_args(Level)), ("mode", mode, get_args(Mode))):
        if value not in choices:
            raise ValueError(f"{where}: {name} is {value!r}: give one of {choices}")
    if veto is not None:
        check_at_least(where, "veto", veto, 0.0)
    if level == "token" and veto is None:
        return _bound(_log_ratio(train_log_probs, rollout_log_probs, mask), low, high, mode, mask)
    if sample_index is None or num_samples is None:
        raise ValueError(
            f"{where}: sample_index or num_samples is None but level={level!r} and veto={veto} need whole sequences: "
            f"give both, as in the packed micro-batch"
        )
    check_sample_index(where, sample_index, "train_log_probs", train_log_probs)
    log_ratio = _log_ratio(train_log_probs, rollout_log_probs, mask)
    too_low = (log_ratio.exp() < (0.0 if veto is None else veto)).to(log_ratio.dtype)
    sums, vetoes, counts = sequence_sums([log_ratio, too_low], mask, sample_index, num_samples, cp, gradient="none")
    if level != "token":
        log_ratio = to_tokens(sums if level == "sequence" else sums / counts.clamp_min(1), sample_index)
    return _bound(log_ratio, low, high, mode, mask, rejected=to_tokens(vetoes, sample_index) > 0)


def _check_pair(where: str, train: Tensor, rollout: Tensor, low: float, high: float, mask: Tensor | None) -> None:
    check_tokens(where, mask=mask, train_log_probs=train, rollout_log_probs=rollout)
    check_at_least(where, "low", low, 0.0)
    check_at_least(where, "high", high, low)


def _log_ratio(train: Tensor, rollout: Tensor, mask: Tensor | None) -> Tensor:
    return keep_unmasked(train.detach(), mask) - keep_unmasked(rollout.detach(), mask)


def _bound(
    log_ratio: Tensor, low: float, high: float, mode: Mode, mask: Tensor | None, *, rejected: Tensor | None = None
) -> ImportanceWeights:
    """Weights from log-ratios: truncated to the bounds, or 0 outside them, and 0 where rejected or masked."""
    ratio = safe_ratio(log_ratio)
    bounded = (ratio < low) | (ratio > high)
    weights = ratio.clamp(low, high) if mode == "truncate" else ratio.masked_fill(bounded, 0)
    if rejected is not None:
        weights, bounded = weights.masked_fill(rejected, 0), bounded | rejected
    if mask is not None:
        bounded = bounded & (mask != 0)
    return ImportanceWeights(weights=keep_unmasked(weights, mask), ratio=ratio, bounded=bounded)
