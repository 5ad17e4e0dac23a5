"""The mapping of weights, without processes: joining and cutting are inverse to splitting and gathering."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from vime_train.megatron._architecture import Architecture
from vime_train.megatron._experts import Experts
from vime_train.megatron._hf_mapping import expert_of, global_name, hf_weight_names, layer_of, weight_rules

experts = st.builds(
    Experts,
    count=st.integers(1, 4),
    per_token=st.just(1),
    ffn_hidden_size=st.sampled_from([3, 5]),
    normalised=st.booleans(),
    layers=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
sizes = st.builds(
    Architecture,
    family=st.sampled_from(["qwen3", "llama"]),
    num_layers=st.integers(1, 3),
    hidden_size=st.sampled_from([6, 8]),
    ffn_hidden_size=st.sampled_from([12, 24]),
    num_attention_heads=st.sampled_from([12, 24]),
    num_query_groups=st.sampled_from([6, 12]),
    head_dim=st.sampled_from([2, 4]),
    vocab_size=st.sampled_from([12, 18]),
    max_position_embeddings=st.just(64),
    norm_epsilon=st.just(1e-6),
    rope_theta=st.just(1e4),
    rope_scaling=st.none(),
    tied_head=st.booleans(),
    experts=st.none() | experts,
)


@given(architecture=sizes, tp=st.sampled_from([1, 2, 3, 6]))
def test_gathering_all_shards_gives_back_what_was_cut(architecture: Architecture, tp: int) -> None:
    for rule in weight_rules(architecture).values():
        logical = torch.arange(torch.Size(rule.shape).numel()).reshape(rule.shape)
        shards = [rule.shard(logical, rank, tp).flatten() for rank in range(tp)]  # Megatron keeps its own shape
        assert torch.equal(rule.unshard(shards), logical)
        assert torch.equal(rule.join(rule.split(logical)), logical)


@given(architecture=sizes)
def test_names_are_those_of_hugging_face(architecture: Architecture) -> None:
    names = hf_weight_names(weight_rules(architecture))
    assert ("lm_head.weight" in names) != architecture.tied_head
    assert ("model.layers.0.self_attn.q_norm.weight" in names) == (architecture.family == "qwen3")
    per_layer = 11 if architecture.family == "qwen3" else 9
    experts = architecture.experts
    routed = sum(experts.layers[: architecture.num_layers]) if experts is not None else 0
    more = routed * (1 + 3 * experts.count - 3) if experts is not None else 0  # a router, and experts in place of one
    assert len(names) == per_layer * architecture.num_layers + 3 - architecture.tied_head + more


def test_qkv_is_interleaved_per_group_of_query_heads() -> None:
    """Group 0 holds query heads 0 and 1, key 0, value 0; then group 1."""
    architecture = Architecture(
        family="llama", num_layers=1, hidden_size=1, ffn_hidden_size=2, num_attention_heads=4, num_query_groups=2,
        head_dim=2, vocab_size=2, max_position_embeddings=8, norm_epsilon=1e-6, rope_theta=1e4, rope_scaling=None,
        tied_head=False,
    )  # fmt: skip
    rule = weight_rules(architecture)["decoder.layers.0.self_attention.linear_qkv.weight"]
    query, key, value = torch.arange(8), torch.arange(10, 14), torch.arange(20, 24)
    joined = rule.join([x[:, None] for x in (query, key, value)]).flatten().tolist()
    assert joined == [0, 1, 2, 3, 10, 11, 20, 21, 4, 5, 6, 7, 12, 13, 22, 23]


def test_layers_are_numbered_over_the_whole_model_and_fused_norms_have_their_own_name() -> None:
    assert (
        global_name("decoder.layers.1.mlp.linear_fc2.weight", first_layer=6) == "decoder.layers.7.mlp.linear_fc2.weight"
    )
    assert (
        global_name("decoder.layers.0.self_attention.linear_qkv.layer_norm_weight", first_layer=2)
        == "decoder.layers.2.input_layernorm.weight"
    )
    assert global_name("output_layer.weight", first_layer=6) == "output_layer.weight"


def test_experts_are_numbered_over_the_whole_model() -> None:
    local = "decoder.layers.1.mlp.experts.local_experts.2.linear_fc1.weight"
    whole = global_name(local, first_layer=6, first_expert=8)
    assert whole == "decoder.layers.7.mlp.experts.local_experts.10.linear_fc1.weight"
    assert (layer_of(whole), expert_of(whole)) == (7, 10)
    assert (layer_of("output_layer.weight"), expert_of("decoder.layers.7.mlp.router.weight")) == (None, None)


@given(architecture=sizes)
def test_every_expert_has_its_own_hugging_face_tensors(architecture: Architecture) -> None:
    for name, rule in weight_rules(architecture).items():
        expert = expert_of(name)
        if expert is not None:
            assert rule.shard_axis is None
            assert all(f".{layer_of(name)}.mlp.experts.{expert}." in hf_name for hf_name in rule.hf_names)
