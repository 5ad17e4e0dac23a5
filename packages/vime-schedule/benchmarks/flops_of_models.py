"""Compare `FlopsCost` with what PyTorch's FLOP counter sees in real Hugging Face models.

    python packages/vime-schedule/benchmarks/flops_of_models.py     # needs torch and transformers, a few seconds

Tiny random models of each family run one forward; the counter adds up their matmuls. It counts full attention where the
formula counts the causal half, so attention is doubled for the comparison. The ratio must be 1.
"""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM

from vime_schedule import FlopsCost

TINY = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "vocab_size": 128,
}
MOE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
MODELS = {
    "llama": {},
    "mistral": {"sliding_window": None},
    "qwen2": {},
    "qwen3": {},
    "gemma2": {"sliding_window": 4096},
    "gemma3_text": {"sliding_window": 4096},
    "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen2_moe": MOE | {"shared_expert_intermediate_size": 48, "decoder_sparse_step": 1, "mlp_only_layers": [1]},
    "qwen3_moe": MOE | {"decoder_sparse_step": 2},
    "deepseek_v3": {
        "num_key_value_heads": 4,
        "head_dim": 8,
        "q_lora_rank": 24,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "n_routed_experts": 8,
        "n_group": 2,
        "topk_group": 1,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "moe_intermediate_size": 32,
        "first_k_dense_replace": 1,
    },
    "phi": {"num_key_value_heads": 4},
    "gpt_neox": {"head_dim": None, "num_key_value_heads": None},
    "starcoder2": {"head_dim": None},
    "nemotron": {},
    "arcee": {},
    "apertus": {"head_dim": None},
    "olmo2": {"head_dim": None},
    "olmoe": {"head_dim": None, "num_experts": 8, "num_experts_per_tok": 2},
    "cohere": {"head_dim": None},
    "stablelm": {"head_dim": None},
    "granite": {"head_dim": None},
    "glm4_moe": {
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "moe_intermediate_size": 32,
        "first_k_dense_replace": 1,
    },
    "gpt_oss": {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": 4096},
}
TOKENS = 64


def main() -> None:
    torch.manual_seed(0)
    for family, extra in MODELS.items():
        config = AutoConfig.for_model(
            family, **{name: value for name, value in (TINY | extra).items() if value is not None}
        )
        config._attn_implementation = config._experts_implementation = "eager"
        model = AutoModelForCausalLM.from_config(config).eval()
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(torch.randint(0, 128, (1, TOKENS)))
        cost = FlopsCost.from_hf_config(config.to_dict())
        attention = cost.full_attention_flops + cost.window_attention_flops
        formula = TOKENS * (cost.token_flops + 2 * attention * TOKENS)
        print(
            f"{family:<14} counted {counter.get_total_flops():>12,}  formula {formula:>12,}  "
            f"ratio {formula / counter.get_total_flops():.4f}"
        )


if __name__ == "__main__":
    main()
