"""Log-probabilities and entropy of the tokens of a micro-batch, from logits whose vocabulary may be sharded over TP.

Laws
- TP 1 and TP n give the same values and the same gradient, shard by shard.
- Beyond the logits, at no time is more alive than their gradient and a quarter of their size.
- A masked position has log-probability 0, entropy 0 and gradient 0, also where its logits are infinite or NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from ._group import Group, group_rank
from ._integers import require_int
from ._softmax_stats import VocabShard
from ._vocab_parallel import LogProbsAndEntropy

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Num
    from torch import Tensor

# Two fp32 buffers, and as much again where a kernel casts, are 4 * 2 / 64 = an eighth of bf16 logits; the law leaves a
# quarter.
_CHUNKS_AT_LEAST = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class LogProbs:
    """What `log_probs_and_entropy` found for every token, in fp32 (fp64 for fp64 logits), in nats."""

    log_probs: Float[Tensor, " tokens"]
    entropy: Float[Tensor, " tokens"] | None


def log_probs_and_entropy(
    logits: Float[Tensor, "tokens vocab_local"],
    targets: Int[Tensor, " tokens"],
    *,
    group: Group = None,
    vocab_start: int | None = None,
    temperature: float = 1.0,
    chunk_size: int = 1024,
    entropy: bool | Literal["no_grad"] = False,
    keep_mask: Bool[Tensor, "tokens vocab_local"] | None = None,
    mask: Num[Tensor, " tokens"] | None = None,
) -> LogProbs:
    """Score each row's target under softmax(logits / temperature), and measure the entropy of that distribution.

    Args:
        logits: this rank's slice of the vocabulary; any floating type, never copied whole.
        targets: ids in the whole vocabulary. An id that no rank (or more than one) owns scores NaN.
        group: the TP group over which the vocabulary is sharded; None where it is whole.
        vocab_start: id of this rank's first column; by default all ranks hold equally many.
        temperature: Divides the logits, as the sampler did; greater than 0.
        chunk_size: most rows processed at once; fewer are taken where the memory law needs it.
        entropy: True for a differentiable entropy, "no_grad" for one that is only reported.
        keep_mask: True at the entries a top-p or top-k sampler could pick. Log-probabilities are normalised over
            those and the target; entropy is always that of the whole distribution.
        mask: not 0 at positions that count; elsewhere values and gradients are exactly 0.

    Raises:
        ValueError: shapes, dtypes or devices that do not fit, or options out of range; before any collective.

    log p(t) = z_t - log sum exp z and H = -sum p log p, z = logits / temperature. The gradients are
    d log p / dz = onehot(t) - p and dH/dz = -p (log p + H); vocabulary sharding after Megatron-LM (arXiv:1909.08053).

    >>> from vime_cp import log_probs_and_entropy
    >>> scored = log_probs_and_entropy(torch.zeros(2, 4), torch.tensor([0, 3]), entropy=True)
    >>> scored.log_probs, scored.entropy
    (tensor([-1.3863, -1.3863]), tensor([1.3863, 1.3863]))
    """
    _check_tensors(logits, targets, keep_mask, mask)
    _check_options(temperature, chunk_size, vocab_start, entropy)
    tokens, vocab_local = logits.shape
    start = group_rank(group) * vocab_local if vocab_start is None else vocab_start
    shard = VocabShard(
        mask=mask,
        keep_mask=_with_targets(keep_mask, targets, start),
        vocab_start=start,
        temperature=float(temperature),
        rows_per_chunk=max(1, min(chunk_size, tokens // _CHUNKS_AT_LEAST)),
        group=group,
    )
    log_probs, values = LogProbsAndEntropy.apply(logits, targets, shard, bool(entropy), entropy is True)  # type: ignore[no-untyped-call]
    return LogProbs(log_probs=log_probs, entropy=values)


def _with_targets(keep_mask: Tensor | None, targets: Tensor, start: int) -> Tensor | None:
    """The keep mask with every target kept: a sampled token has a probability, whatever the filter says now."""
    if keep_mask is None:
        return None
    columns = targets - start
    owned = (columns >= 0) & (columns < keep_mask.shape[1])
    columns = columns.masked_fill(~owned, 0)[:, None]
    return keep_mask.scatter(1, columns, keep_mask.gather(1, columns) | owned[:, None])


def _check_tensors(logits: Tensor, targets: Tensor, keep_mask: Tensor | None, mask: Tensor | None) -> None:
    where = "log_probs_and_entropy"
    if logits.dim() != 2 or logits.shape[1] == 0 or not logits.is_floating_point():
        raise ValueError(
            f"{where}: logits has shape {tuple(logits.shape)} and dtype {logits.dtype}: give floating-point "
            f"[tokens, vocab_local], the rows of the packed micro-batch without a batch dimension"
        )
    tokens = logits.shape[0]
    if tuple(targets.shape) != (tokens,) or targets.is_floating_point() or targets.dtype == torch.bool:
        raise ValueError(
            f"{where}: targets has shape {tuple(targets.shape)} and dtype {targets.dtype}: give integer [{tokens}], "
            f"one id per row of logits, as PackedMicroBatch.labels"
        )
    if keep_mask is not None and (keep_mask.shape != logits.shape or keep_mask.dtype != torch.bool):
        raise ValueError(
            f"{where}: keep_mask has shape {tuple(keep_mask.shape)} and dtype {keep_mask.dtype}: "
            f"give bool {list(logits.shape)}, one entry per logit of this rank"
        )
    if mask is not None and tuple(mask.shape) != (tokens,):
        raise ValueError(f"{where}: mask has shape {tuple(mask.shape)}: give [{tokens}], one entry per row of logits")
    for name, given in (("targets", targets), ("keep_mask", keep_mask), ("mask", mask)):
        if given is not None and given.device != logits.device:
            raise ValueError(
                f"{where}: {name} is on {given.device} but logits is on {logits.device}: move them together"
            )


def _check_options(temperature: float, chunk_size: int, vocab_start: int | None, entropy: object) -> None:
    where = "log_probs_and_entropy"
    if not math.isfinite(temperature) or temperature <= 0:
        raise ValueError(f"{where}: temperature is {temperature}: give the sampler's, a number greater than 0")
    require_int(f"{where}: chunk_size", chunk_size, minimum=1)
    if vocab_start is not None:
        require_int(f"{where}: vocab_start", vocab_start, minimum=0)
    if entropy not in (True, False, "no_grad"):
        raise ValueError(f"{where}: entropy is {entropy!r}: give True, False or 'no_grad'")
