"""The examination itself: draw, run, compare, shrink."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, get_args

import torch

from ._evaluate import Combine, evaluate
from ._laws import LAWS, Law
from ._report import Failure, LawResult, Report
from ._shrink import shrink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from ._case import Case
    from ._evaluate import LossFunction, Outcome


def check(
    loss_function: LossFunction,
    *,
    combine: Combine = "sum",
    laws: Sequence[str] | None = None,
    examples: int = 25,
    seed: int = 0,
    tolerance: float = 1e-6,
) -> Report:
    """Examine whether a loss, or its gradient, depends on how the batch was split.

    The loss is called with a `Shard` for every micro-batch on every simulated rank. Compared with the same loss on the
    uncut batch are the value and the gradient with respect to ``log_probs``, ``entropy`` and ``values`` of every token.

    Args:
        loss_function: takes a `Shard`, returns its loss as a scalar tensor.
        combine: what the trainer does with the losses of all micro-batches and ranks. "sum": they add up. "mean":
            averaged over micro-batches and DP x CP ranks, as gradient accumulation and DDP do. "megatron": the function
            returns ``(loss, num_tokens, log)``; loss / num_tokens is averaged. "megatron_per_token": the triple with
            ``calculate_per_token_loss``, the sum of losses over the sum of tokens.
        laws: names of the laws to examine; None is all of `LAWS`. Leave out "masked samples" if fully masked units are
            to count in a denominator.
        examples: random cases per law.
        seed: same seed, same cases.
        tolerance: how far numbers may differ, relative and absolute. Everything runs in fp64 except what the loss
            itself casts; Megatron inverts token counts in fp32.

    Raises:
        ValueError: an unknown law or combination, or fewer than one example. What the loss function itself raises is a
            failure in the report.

    >>> from vime_cp import weighted_sum, sample_weights
    >>> from vime_cp.invariance import check
    >>> def token_mean(shard):
    ...     weights = sample_weights("token_mean", shard.step.mask_sums)[list(shard.samples)]
    ...     return weighted_sum(-shard.log_probs, shard.batch.mask, weights, shard.batch.sample_index)
    >>> check(token_mean).holds
    True
    """
    chosen = _chosen(laws)
    if combine not in get_args(Combine):
        raise ValueError(f"check: combine is {combine!r}: give one of {get_args(Combine)}")
    if examples < 1:
        raise ValueError(f"check: examples is {examples}: give at least 1")

    def run(case: Case, *, poison: bool = False) -> Outcome:
        return evaluate(loss_function, case, combine, poison=poison)

    def examine(law: Law, case: Case) -> Failure | None:
        text = _difference(law, case, run, tolerance) if law.premise(case) else None
        return None if text is None else Failure(case=case, text=text)

    results = []
    for law in chosen:
        rng = random.Random(f"{seed} {law.name}")
        failure, tried = None, 0
        while failure is None and tried < examples:
            failure = examine(law, law.draw(rng))
            tried += 1
        if failure is not None:
            failure = shrink(failure, lambda case, law=law: examine(law, case))  # type: ignore[misc]
        results.append(LawResult(law=law, examples=tried, failure=failure))
    return Report(results=tuple(results))


def _chosen(names: Sequence[str] | None) -> tuple[Law, ...]:
    if names is None:
        return LAWS
    known = {law.name: law for law in LAWS}
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise ValueError(f"check: laws has {unknown or 'nothing'}: give some of {list(known)}")
    return tuple(known[name] for name in names)


def _difference(law: Law, case: Case, run: object, tolerance: float) -> str | None:
    """What differs in a case, or None; an error of the loss function is a difference too."""
    try:
        got, expected, samples = law.compare(run, case)  # type: ignore[arg-type]
    except Exception as error:
        return f"the loss function raised {type(error).__name__}: {error}"
    if not _close(got.value, expected.value, tolerance):
        return f"the loss is {_versus(got.value, expected.value)}"
    for name, grads in expected.gradients.items():
        for sample, exact in zip(samples, grads, strict=True):
            grad = got.gradients[name][sample]
            wrong = (~torch.isclose(grad, exact, rtol=tolerance, atol=tolerance)).nonzero().flatten().tolist()
            if wrong:
                token = wrong[0]
                numbers = _versus(grad[token], exact[token])
                return f"the gradient of {name} at sample {sample}, response token {token}, is {numbers}"
    return None


def _close(got: Tensor, expected: Tensor, tolerance: float) -> bool:
    return torch.allclose(got, expected, rtol=tolerance, atol=tolerance)


def _versus(got: Tensor, expected: Tensor) -> str:
    ratio = f" ({got.item() / expected.item():.4g} times)" if expected.item() else ""
    return f"{got.item():.6g} but should be {expected.item():.6g}{ratio}"
