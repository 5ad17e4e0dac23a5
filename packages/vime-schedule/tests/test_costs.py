"""Cost models: the FLOPs formula against an explicit count, and the configs it reads."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vime_schedule import FlopsCost, PolynomialCost, ScheduleError, token_cost

DENSE = {
    "hidden_size": 2560,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 9728,
    "vocab_size": 151936,
}
LLAMA_3_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
MIXTRAL_8X7B = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "sliding_window": None,
    "vocab_size": 32000,
}
QWEN3_30B_A3B = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "use_sliding_window": False,
    "sliding_window": None,
    "max_window_layers": 48,
    "vocab_size": 151936,
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "vocab_size": 129280,
}
TINY = {
    "hidden_size": 12,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 5,
    "intermediate_size": 20,
    "vocab_size": 50,
}


def matmul(m: int, k: int, n: int) -> int:
    """FLOPs of [m, k] @ [k, n], counted one multiply and one add at a time by the definition."""
    return sum(2 * k for _ in range(m) for _ in range(n))


def causal_attention(s: int, heads: int, qk: int, v: int, window: int | None = None) -> float:
    """Score and value products pair by pair; the diagonal, where a token meets itself, counts half."""
    pairs = 0.0
    for query in range(s):
        for key in range(query + 1):
            if window is None or query - key < window:
                pairs += 0.5 if key == query else 1.0
            elif query - key == window:
                pairs += 0.5
    return heads * pairs * (2 * qk + 2 * v)


def grouped_layer(s: int, config: dict[str, int], window: int | None = None) -> float:
    h, n, g, d = (config[key] for key in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"))
    query = matmul(s, h, n * d)
    key_value = matmul(s, h, g * d) + matmul(s, h, g * d)
    output = matmul(s, n * d, h)
    return query + key_value + output + causal_attention(s, n, d, d, window)


def gated_mlp(s: int, h: int, f: int) -> int:
    return matmul(s, h, f) + matmul(s, h, f) + matmul(s, f, h)


@pytest.mark.parametrize("s", [1, 2, 7, 33])
def test_dense_layer_counted_matmul_by_matmul(s: int) -> None:
    layers = 4 * (grouped_layer(s, TINY) + gated_mlp(s, 12, 20))
    assert FlopsCost.from_hf_config(TINY)(s) == layers + matmul(s, 12, 50)


@pytest.mark.parametrize("s", [1, 5, 6, 7, 30])
def test_sliding_layers_counted_pair_by_pair(s: int) -> None:
    config = TINY | {"sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"] * 2}
    layers = 2 * grouped_layer(s, TINY) + 2 * grouped_layer(s, TINY, window=6) + 4 * gated_mlp(s, 12, 20)
    assert FlopsCost.from_hf_config(config)(s) == layers + matmul(s, 12, 50)


@pytest.mark.parametrize("query_rank", [None, 3])
def test_latent_attention_counted_matmul_by_matmul(query_rank: int | None) -> None:
    s, h, n, rank, nope, rope, v = 9, 12, 4, 6, 4, 2, 3
    config = TINY | {"kv_lora_rank": rank, "q_lora_rank": query_rank, "qk_nope_head_dim": nope}
    config |= {"qk_rope_head_dim": rope, "v_head_dim": v}
    if query_rank is None:
        query = matmul(s, h, n * (nope + rope))
    else:
        query = matmul(s, h, query_rank) + matmul(s, query_rank, n * (nope + rope))
    key_value = matmul(s, h, rank + rope) + matmul(s, rank, n * (nope + v))
    layer = query + key_value + matmul(s, n * v, h) + causal_attention(s, n, nope + rope, v) + gated_mlp(s, h, 20)
    assert FlopsCost.from_hf_config(config)(s) == 4 * layer + matmul(s, h, 50)


def test_experts_counted_token_by_token() -> None:
    s, h = 9, 12
    config = TINY | {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 7}
    config |= {"n_shared_experts": 3, "first_k_dense_replace": 1}
    routed = sum(gated_mlp(1, h, 7) for _token in range(s) for _expert in range(2))
    moe = matmul(s, h, 8) + routed + sum(gated_mlp(s, h, 7) for _shared in range(3))
    layers = 4 * grouped_layer(s, TINY) + 3 * moe + gated_mlp(s, h, 20)
    assert FlopsCost.from_hf_config(config)(s) == layers + matmul(s, h, 50)


def test_gated_shared_expert_of_its_own_size() -> None:
    s, h = 9, 12
    config: dict[str, object] = {**TINY, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 7}
    config |= {"shared_expert_intermediate_size": 11, "mlp_only_layers": [0], "decoder_sparse_step": 2}
    moe = matmul(s, h, 8) + 2 * gated_mlp(s, h, 7) + gated_mlp(s, h, 11) + matmul(s, h, 1)
    layers = 4 * grouped_layer(s, TINY) + 2 * moe + 2 * gated_mlp(s, h, 20)  # layers 1 and 3 route
    assert FlopsCost.from_hf_config(config)(s) == layers + matmul(s, h, 50)


@given(st.integers(1, 2**53))
def test_ratios_match_the_benchmark_formula(s: int) -> None:
    h, layers, n, g, d, f, vocabulary = DENSE.values()
    linear = 2 * s * h * (n * d) + 4 * s * h * g * d + 2 * s * h * (n * d) + 6 * s * h * f
    assert FlopsCost.from_hf_config(DENSE)(s) == layers * (linear + 2 * n * d * s * s) + 2 * s * h * vocabulary


@pytest.mark.parametrize(
    ("config", "active_billions"),
    [(LLAMA_3_8B, 8.03 - 0.53), (MIXTRAL_8X7B, 12.9 - 0.13), (QWEN3_30B_A3B, 3.35 - 0.31), (DEEPSEEK_V3, 37.0 - 0.93)],
    ids=["llama-3-8b", "mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3"],
)
def test_per_token_flops_are_twice_the_published_active_parameters(
    config: dict[str, object], active_billions: float
) -> None:
    """Every weight but the embedding table is multiplied once per token: 2 FLOPs per active parameter."""
    assert FlopsCost.from_hf_config(config).token_flops / 2e9 == pytest.approx(active_billions, rel=0.02)


def test_a_tied_head_costs_what_an_untied_one_costs() -> None:
    tied = FlopsCost.from_hf_config(LLAMA_3_8B | {"tie_word_embeddings": True})
    assert tied == FlopsCost.from_hf_config(LLAMA_3_8B)


def test_missing_fields_take_the_hugging_face_defaults() -> None:
    config = {key: value for key, value in TINY.items() if key not in ("num_key_value_heads", "head_dim")}
    explicit = TINY | {"num_key_value_heads": 4, "head_dim": 3}
    assert FlopsCost.from_hf_config(config) == FlopsCost.from_hf_config(explicit)


def test_a_multimodal_config_counts_its_language_model() -> None:
    nested = {"model_type": "qwen2_5_vl", "vision_config": {"hidden_size": 1280}, "text_config": TINY}
    assert FlopsCost.from_hf_config(nested) == FlopsCost.from_hf_config(TINY)


@pytest.mark.parametrize(
    ("extra", "sliding_layers"),
    [
        ({"sliding_window": 6}, 4),
        ({"sliding_window": 6, "use_sliding_window": False}, 0),
        ({"sliding_window": 6, "use_sliding_window": True, "max_window_layers": 3}, 1),
        ({"sliding_window": 6, "sliding_window_pattern": 3}, 3),
        ({"sliding_window": 6, "layer_types": ["full_attention"] * 3 + ["sliding_attention"]}, 1),
        ({"sliding_window": None}, 0),
    ],
)
def test_every_way_to_say_which_layers_slide(extra: dict[str, object], sliding_layers: int) -> None:
    cost = FlopsCost.from_hf_config(TINY | extra)
    per_layer = 2 * 4 * 5
    assert cost.window_attention_flops == sliding_layers * per_layer
    assert cost.full_attention_flops == (4 - sliding_layers) * per_layer


@pytest.mark.parametrize("extra", [{"model_type": "gpt_neox"}, {"model_type": "nemotron", "hidden_act": "relu2"}])
def test_an_ungated_mlp_has_two_matrices(extra: dict[str, object]) -> None:
    gated, plain = FlopsCost.from_hf_config(TINY), FlopsCost.from_hf_config(TINY | extra)
    assert gated.token_flops - plain.token_flops == 4 * 2 * 12 * 20


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"hidden_size": None}, "`hidden_size` is missing"),
        ({"hidden_size": 0}, "`hidden_size` is 0 but must be a whole number of at least 1"),
        ({"vocab_size": "many"}, "`vocab_size` is 'many'"),
        ({"num_hidden_layers": True}, "`num_hidden_layers` is True"),
        ({"layer_types": ["full_attention"]}, "`layer_types` names 1 layers but `num_hidden_layers` is 4"),
        ({"layer_types": ["full_attention"] * 3 + ["linear_attention"]}, r"`layer_types`\[3\] is 'linear_attention'"),
        ({"layer_types": "full"}, "`layer_types` is 'full' but must be a list"),
        ({"attention_chunk_size": 8192}, "chunked attention is not counted"),
        ({"full_attention_interval": 4}, "linear attention is not counted"),
        ({"conv_L_cache": 3}, "a convolution layer is not counted"),
        ({"moe_num_experts": 64}, "`moe_num_experts`=64 but none of num_experts"),
        ({"num_experts": 8}, "`num_experts_per_tok` is missing"),
        (
            {"num_experts": 8, "num_experts_per_tok": 2, "shared_intermediate_size": 9},
            "`shared_intermediate_size`=9 but none of n_shared_experts",
        ),
    ],
)
def test_a_config_that_would_be_counted_wrong_is_refused(change: dict[str, object], text: str) -> None:
    with pytest.raises(ScheduleError, match=text):
        FlopsCost.from_hf_config(TINY | change)


def test_a_config_object_is_refused_with_the_remedy() -> None:
    with pytest.raises(ScheduleError, match=r"got list: pass `config.to_dict\(\)`"):
        FlopsCost.from_hf_config([])  # type: ignore[arg-type]


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(1e-6, 1e6), st.integers(1, 2**53))
def test_polynomial(constant: float, linear: float, quadratic: float, length: int) -> None:
    cost = PolynomialCost(constant, linear, quadratic)(length)
    assert math.isclose(cost, constant + linear * length + quadratic * float(length) ** 2, rel_tol=1e-9)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
@pytest.mark.parametrize("position", [0, 1, 2])
def test_polynomial_refuses_what_is_not_a_cost(bad: float, position: int) -> None:
    coefficients = [1.0, 1.0, 1.0]
    coefficients[position] = bad
    with pytest.raises(ScheduleError, match=f"`{('constant', 'linear', 'quadratic')[position]}` is {bad!r}"):
        PolynomialCost(*coefficients)


def test_polynomial_of_nothing_is_refused() -> None:
    with pytest.raises(ScheduleError, match="all coefficients are 0"):
        PolynomialCost(0.0, 0.0, 0.0)


@pytest.mark.parametrize("cost", [token_cost, PolynomialCost(1.0, 1.0, 1.0), FlopsCost.from_hf_config(DEEPSEEK_V3)])
def test_costs_grow_with_length_up_to_2_to_the_53(cost: object) -> None:
    values = [cost(length) for length in (1, 2, 1000, 2**20, 2**53)]  # type: ignore[operator]
    assert values == sorted(values)
    assert all(0 < value < math.inf for value in values)
