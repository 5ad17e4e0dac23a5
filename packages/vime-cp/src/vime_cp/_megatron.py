"""What Megatron-core's schedules want from a loss function, such that the gradient they produce is that of J exactly.

Megatron divides a loss by ``num_tokens`` and by the number of micro-batches M and averages gradients over DP x CP;
or, with ``calculate_per_token_loss``, it sums gradients over DP x CP and divides them by the all-reduced
``num_tokens``. `sample_weights` has already normalised J, so both divisions are undone beforehand. Law: in both
modes, for every M, dp, cp, tp and pp, the gradient after ``finalize_model_grads`` is that of the sum of the partial
sums of all ranks and micro-batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ._integers import require_int

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxtyping import Float, Int32
    from torch import Tensor

_INT32_MAX = 2**31 - 1


def megatron_loss(
    partial_sum: Float[Tensor, ""],
    *,
    log: Mapping[str, Tensor],
    num_microbatches: int,
    dp: int,
    cp: int,
    calculate_per_token_loss: bool,
    num_tokens: int | None = None,
    step_num_tokens: int | None = None,
) -> tuple[Float[Tensor, ""], Int32[Tensor, ""], dict[str, Tensor]]:
    """The ``(loss, num_tokens, log)`` triple for the loss function of one micro-batch on one rank.

    Args:
        partial_sum: this rank's share of J from this micro-batch, as `weighted_sum` returns it.
        log: tensors to report; they come back detached. Megatron divides its loss in place, which is why the loss
            returned here is a tensor of its own: nothing logged is divided.
        num_microbatches: M, micro-batches per rank in this step.
        dp: data-parallel size without CP.
        cp: context-parallel size.
        calculate_per_token_loss: the setting of the same name in Megatron's configuration.
        num_tokens: what Megatron is told for this micro-batch; it never changes the gradient of J. None means 1 for
            every micro-batch. With ``calculate_per_token_loss`` and MoE give the local length, padding included:
            Megatron weighs its auxiliary losses by that length and divides by these counts, so that with 1 they
            would be a length too strong.
        step_num_tokens: the sum of ``num_tokens`` over all micro-batches and all DP x CP ranks of the step; needed
            with it.

    Raises:
        ValueError: sizes below 1, one of the two token counts alone, or a step of more tokens than Megatron's int32
            holds.

    >>> from vime_cp import megatron_loss
    >>> partial_sum = torch.tensor(0.25)
    >>> sizes = {"num_microbatches": 4, "dp": 2, "cp": 1, "calculate_per_token_loss": False}
    >>> megatron_loss(partial_sum, log={"loss": partial_sum}, **sizes)
    (tensor(2.), tensor(1, dtype=torch.int32), {'loss': tensor(0.2500)})
    """
    if partial_sum.dim() != 0 or not partial_sum.is_floating_point():
        raise ValueError(
            f"megatron_loss: partial_sum has shape {tuple(partial_sum.shape)} and dtype {partial_sum.dtype}: "
            f"give a floating-point scalar, as weighted_sum returns it"
        )
    for name, value in (("num_microbatches", num_microbatches), ("dp", dp), ("cp", cp)):
        require_int(name, value, minimum=1)
    shares = num_microbatches * dp * cp
    tokens, step_tokens = _token_counts(num_tokens, step_num_tokens, shares)
    factor = 1.0 / _reciprocal(step_tokens) if calculate_per_token_loss else float(shares * max(tokens, 1))
    count = torch.full((), tokens, dtype=torch.int32, device=partial_sum.device)
    return partial_sum * factor, count, {name: value.detach() for name, value in log.items()}


def _token_counts(num_tokens: int | None, step_num_tokens: int | None, shares: int) -> tuple[int, int]:
    """Tokens of this micro-batch and of the step, 1 for each of the step's ``shares`` where none are given."""
    if num_tokens is None and step_num_tokens is None:
        return 1, shares
    if num_tokens is None or step_num_tokens is None:
        raise ValueError(
            f"megatron_loss: num_tokens is {num_tokens} and step_num_tokens is {step_num_tokens}: "
            f"give both or neither, since Megatron divides by the sum over the step"
        )
    require_int("num_tokens", num_tokens, minimum=0)
    require_int("step_num_tokens", step_num_tokens, minimum=max(num_tokens, 1))
    if step_num_tokens > _INT32_MAX:
        raise ValueError(
            f"megatron_loss: step_num_tokens is {step_num_tokens} but Megatron adds token counts in int32: "
            f"leave num_tokens and step_num_tokens out"
        )
    return num_tokens, step_num_tokens


def _reciprocal(step_num_tokens: int) -> float:
    """What Megatron multiplies gradients by: 1 over its int32 count, rounded to the default floating type as there."""
    return torch.tensor(step_num_tokens, dtype=torch.int32).reciprocal().item()
