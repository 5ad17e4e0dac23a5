"""Which layers of a Hugging Face model are mixtures of experts, and what an MLP costs per token.

Covers the fields of Mixtral (every layer), Qwen-MoE (a step and a list of dense layers), and DeepSeek and GLM (dense
layers first, shared experts always on). A token pays its top-k experts, the shared experts and the router.
"""

from __future__ import annotations

from vime_schedule._costs._hf_fields import ConfigReader
from vime_schedule._errors import ScheduleError

EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts")
SHARED_EXPERTS = ("n_shared_experts", "shared_expert_intermediate_size")
EXPERTS_PER_TOKEN = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token")
UNGATED_MODELS = frozenset({"falcon", "gpt_neox", "opt", "phi", "starcoder2"})
UNGATED_ACTIVATIONS = frozenset({"relu2", "xielu"})


def is_expert_layer(reader: ConfigReader, index: int) -> bool:
    """Whether layer `index` routes its tokens to experts."""
    if _expert_count(reader) == 0:
        return False
    if index < reader.count("first_k_dense_replace") or index in reader.sequence("mlp_only_layers"):
        return False
    frequency = reader.fields.get("moe_layer_freq")
    if isinstance(frequency, list | tuple):
        return bool(frequency[index]) if index < len(frequency) else False
    if reader.has("moe_layer_freq"):
        return index % reader.size("moe_layer_freq") == 0
    return (index + 1) % reader.size("decoder_sparse_step", default=1) == 0


def mlp_flops(reader: ConfigReader, *, expert: bool) -> int:
    """Return the FLOPs per token of a dense MLP, or of a token's share of a mixture of experts."""
    hidden = reader.size("hidden_size")
    per_width = 2 * hidden * _matrices(reader)
    if not expert:
        return per_width * reader.size("intermediate_size")
    chosen = reader.size(reader.first_present(*EXPERTS_PER_TOKEN) or EXPERTS_PER_TOKEN[0])
    width = reader.size(reader.first_present("moe_intermediate_size") or "intermediate_size")
    routed = per_width * chosen * width
    router = 2 * hidden * _expert_count(reader)
    return routed + router + _shared_flops(reader, per_width, width)


def _matrices(reader: ConfigReader) -> int:
    """Return how many weight matrices an MLP has: up and down, and a gate in nearly every model."""
    ungated = reader.fields.get("model_type") in UNGATED_MODELS
    return 2 if ungated or reader.fields.get("hidden_act") in UNGATED_ACTIVATIONS else 3


def _shared_flops(reader: ConfigReader, per_width: int, width: int) -> int:
    """Return the FLOPs per token of the experts that every token visits."""
    _refuse_unknown(reader, "shared", SHARED_EXPERTS)
    if reader.has("shared_expert_intermediate_size"):
        size = reader.count("shared_expert_intermediate_size")
        gate = 2 * reader.size("hidden_size") if size else 0
        return per_width * size + gate
    return per_width * width * reader.count("n_shared_experts")


def _expert_count(reader: ConfigReader) -> int:
    """Return how many routed experts a layer has."""
    name = reader.first_present(*EXPERT_COUNTS)
    if name is None:
        _refuse_unknown(reader, "experts", EXPERT_COUNTS)
        return 0
    experts = reader.count(name)
    return experts if experts > 1 else 0


def _refuse_unknown(reader: ConfigReader, word: str, known: tuple[str, ...]) -> None:
    """Refuse a config that has experts, but under a field that would be left out of the count."""
    if reader.first_present(*known) is not None:
        return
    for name, value in reader.fields.items():
        if word in name and isinstance(value, int) and not isinstance(value, bool) and value > 0:
            raise ScheduleError(
                f"the config has `{name}`={value} but none of {', '.join(known)}: "
                "its experts would be counted wrong; add one of those fields, or use PolynomialCost."
            )
