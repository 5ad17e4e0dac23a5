"""Context-parallel layouts and RL losses whose value and gradient do not depend on how the batch was split."""

from ._advantages._group_relative import dr_grpo_advantages, grpo_advantages, rloo_advantages
from ._advantages._returns import Advantages, discounted_returns, generalized_advantages
from ._advantages._token_level import gae, reinforce_plus_plus_advantages, reinforce_plus_plus_baseline_advantages
from ._aggregation import Aggregation, sample_weights
from ._collectives import Gradient
from ._columns import gather_responses, gather_tokens, pack_response, pack_routed_experts, pack_tokens, unpack_response
from ._context_parallel import ContextParallel, Layout
from ._finite import check_finite
from ._group import Group
from ._logprobs import LogProbs, log_probs_and_entropy
from ._losses._cispo import cispo_loss
from ._losses._distillation import distillation_advantages, distillation_loss
from ._losses._entropy import entropy_bonus
from ._losses._gspo import gspo_loss
from ._losses._importance import ImportanceWeights, icepop, mis, tis
from ._losses._kl import KLEstimator, kl
from ._losses._off_policy_mask import off_policy_sequence_mask
from ._losses._policy import PolicyLoss, policy_loss
from ._losses._sft import sft_loss
from ._losses._value import ValueLoss, value_loss
from ._megatron import megatron_loss
from ._packing import PackedMicroBatch, pack_micro_batch, packed_length
from ._reduction import sample_sums, weighted_sum
from ._response_index import ResponseIndex
from ._sequence import to_tokens
from ._simulation import MissingRankError, SimulatedGroup, simulate
from ._whiten import whiten

__all__ = [
    "Advantages",
    "Aggregation",
    "ContextParallel",
    "Gradient",
    "Group",
    "ImportanceWeights",
    "KLEstimator",
    "Layout",
    "LogProbs",
    "MissingRankError",
    "PackedMicroBatch",
    "PolicyLoss",
    "ResponseIndex",
    "SimulatedGroup",
    "ValueLoss",
    "check_finite",
    "cispo_loss",
    "discounted_returns",
    "distillation_advantages",
    "distillation_loss",
    "dr_grpo_advantages",
    "entropy_bonus",
    "gae",
    "gather_responses",
    "gather_tokens",
    "generalized_advantages",
    "grpo_advantages",
    "gspo_loss",
    "icepop",
    "kl",
    "log_probs_and_entropy",
    "megatron_loss",
    "mis",
    "off_policy_sequence_mask",
    "pack_micro_batch",
    "pack_response",
    "pack_routed_experts",
    "pack_tokens",
    "packed_length",
    "policy_loss",
    "reinforce_plus_plus_advantages",
    "reinforce_plus_plus_baseline_advantages",
    "rloo_advantages",
    "sample_sums",
    "sample_weights",
    "sft_loss",
    "simulate",
    "tis",
    "to_tokens",
    "unpack_response",
    "value_loss",
    "weighted_sum",
    "whiten",
]
