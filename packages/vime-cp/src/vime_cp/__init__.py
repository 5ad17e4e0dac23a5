"""Context-parallel layouts and RL losses whose value and gradient do not depend on how the batch was split."""

from ._aggregation import Aggregation, sample_weights
from ._collectives import Gradient
from ._columns import gather_responses, pack_response, pack_routed_experts, pack_tokens, unpack_response
from ._context_parallel import ContextParallel, Layout
from ._megatron import megatron_loss
from ._packing import PackedMicroBatch, pack_micro_batch
from ._reduction import sample_sums, weighted_sum
from ._response_index import ResponseIndex

__all__ = [
    "Aggregation",
    "ContextParallel",
    "Gradient",
    "Layout",
    "PackedMicroBatch",
    "ResponseIndex",
    "gather_responses",
    "megatron_loss",
    "pack_micro_batch",
    "pack_response",
    "pack_routed_experts",
    "pack_tokens",
    "sample_sums",
    "sample_weights",
    "unpack_response",
    "weighted_sum",
]
