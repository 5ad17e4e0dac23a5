"""One pass of micro-batches through Megatron's pipeline schedules: the place where its conventions are met.

Always true: every rank of the layout calls with its own micro-batches, equally many; losses come out on the last stage
only.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from megatron.core.pipeline_parallel import get_forward_backward_func

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jaxtyping import Float
    from torch import Tensor

    from vime_train.megatron._groups import Groups
    from vime_train.megatron._micro_batch import MicroBatch
    from vime_train.megatron._model import ModelChunks


class LossFunction(Protocol):
    """From the logits of a micro-batch to what Megatron wants: `(loss, num_tokens, log)`, or `(loss, log)`."""

    def __call__(
        self, micro_batch: MicroBatch, logits: Float[Tensor, "local vocab_local"]
    ) -> tuple[Tensor, Tensor, dict[str, Any]] | tuple[Tensor, dict[str, Any]]:
        """Called on the last stage, once per micro-batch."""
        ...


def run_micro_batches(
    chunks: ModelChunks,
    groups: Groups,
    micro_batches: Sequence[MicroBatch],
    loss_function: LossFunction,
    *,
    forward_only: bool = False,
) -> list[dict[str, Any]]:
    """Forward (and backward) of all micro-batches; returns their logs on the last stage, nothing elsewhere."""
    iterators = [iter(micro_batches) for _ in chunks.wrapped]
    logs: list[dict[str, Any]] = get_forward_backward_func()(
        forward_step_func=partial(_forward, loss_function),
        data_iterator=iterators if len(iterators) > 1 else iterators[0],
        model=chunks.wrapped if len(iterators) > 1 else chunks.wrapped[0],
        num_microbatches=len(micro_batches),
        seq_length=micro_batches[0].packed.local_length * groups.layout.cp,
        micro_batch_size=1,
        forward_only=forward_only,
    )
    return logs


def _forward(loss_function: LossFunction, data: Iterator[MicroBatch], model: Any) -> tuple[Tensor, Any]:
    micro_batch = next(data)
    packed = micro_batch.packed
    output = model(packed.tokens, packed.position_ids, None, packed_seq_params=micro_batch.attention)
    return output, lambda logits: loss_function(micro_batch, logits[0])
