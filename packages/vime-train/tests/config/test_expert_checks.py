"""Models with experts: what cannot be spread or served is refused at launch (law T4), and what nothing would read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vime_train.config import ConfigError, Machine, ModelShape, RunConfig, check_launch, load_config
from vime_train.rollout import objective

LAPTOP = Machine(cores=2, memory_gib=24.0, gpus=0)
SERVER = Machine(cores=64, memory_gib=512.0, gpus=8)
EXPERTS = ("model.num_experts=6", "layout.dp=2")


def refusal(*overrides: str, machine: Machine = LAPTOP) -> str:
    with pytest.raises(ConfigError) as error:
        check_launch(load_config(["arithmetic.toml"], overrides), machine=machine, vocab_size=64)
    return str(error.value)


@pytest.mark.parametrize(
    "layout", [[], ["layout.ep=2"], ["layout.tp=2", "layout.dp=1", "layout.ep=2"], ["layout.cp=3", "layout.ep=6"]]
)
def test_experts_may_be_spread_over_the_ranks_of_a_stage(layout: list[str]) -> None:
    check_launch(load_config(["arithmetic.toml"], [*EXPERTS, *layout]), machine=LAPTOP, vocab_size=64)


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["model.num_experts=5", "layout.ep=2"], "layout.ep = 2: the model's 5 experts ([model]) are not divisible"),
        ([*EXPERTS, "layout.ep=3"], "over the dp * cp * tp = 2 ranks of a stage, which are not divisible by 3"),
        ([*EXPERTS, "model.num_experts_per_tok=7"], "num_experts_per_tok = 7 ([model]): the model has 6 experts"),
        ([*EXPERTS, "model.num_experts_per_tok=1"], "the router would never learn; use at least 2"),
        (["layout.ep=2"], "layout.ep = 2: the model has no experts ([model]) to spread"),
        (
            ["train.router_aux_loss_coefficient=0.01"],
            "coefficient = 0.01: the model has no router",
        ),
        (["model.num_experts_per_tok=3"], "model.num_experts_per_tok is read by nothing without model.num_experts"),
        (["model.moe_intermediate_size=32"], "model.moe_intermediate_size is read by nothing"),
        (["algorithm.routing_replay=true"], "algorithm.routing_replay = true: the model has no router"),
        ([*EXPERTS, "algorithm.routing_replay=true"], "are those of the pass that recomputes. Set the second"),
        ([*EXPERTS, "megatron.moe_router_topk=4"], "experts are those of config.json"),
        (["vllm.worker_extension_cls='a.B'"], "engines bring one of their own"),
    ],
)
def test_what_cannot_work_is_refused(overrides: list[str], told: str) -> None:
    assert told in refusal(*overrides)


def test_a_width_that_the_cpu_kernel_does_not_take_is_refused_on_a_cpu_only() -> None:
    narrow = [*EXPERTS, "model.hidden_size=80"]
    assert "hidden_size = 80 ([model]): vLLM's CPU kernel of experts needs a multiple of 32" in refusal(*narrow)
    on_gpus = load_config(["arithmetic.toml"], [*narrow, "cluster.gpus_per_process=1"])
    check_launch(on_gpus, machine=SERVER, vocab_size=64)


@pytest.mark.parametrize("name", ["num_experts", "num_local_experts"])  # transformers 4 and 5
def test_experts_of_a_directory_are_read(name: str, tmp_path: Path) -> None:
    values = {
        "num_hidden_layers": 4, "num_attention_heads": 4, "hidden_size": 64, "vocab_size": 64,
        "max_position_embeddings": 512, name: 6, "num_experts_per_tok": 3,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(values))
    path = f"model.path={str(tmp_path)!r}"
    experts = ModelShape.of(load_config(overrides=[path]).model).experts
    assert experts is not None
    assert (experts.count, experts.per_token, experts.hidden_size) == (6, 3, 64)
    assert "are not divisible by 4; choose layout.ep among the divisors of 6" in refusal(path, "layout.ep=4")
    teacher = (f"algorithm.kl.reference={str(tmp_path)!r}", "algorithm.kl.coefficient=0.1", "model.num_experts=4")
    assert "6 experts" in refusal(*teacher, "layout.dp=4", "layout.ep=4"), "of every model in the trainers"


@pytest.mark.parametrize(
    ("ep", "chosen", "planned"),
    [(1, None, "balanced"), (2, None, "lockstep"), (2, "step", "step"), (1, "lockstep", "lockstep")],
)
def test_ranks_that_meet_at_every_micro_batch_are_planned_in_lockstep(
    ep: int, chosen: str | None, planned: str
) -> None:
    config = RunConfig.model_validate({"layout": {"ep": ep}, "batching": {"objective": chosen}})
    assert objective(config) == planned


def test_replayed_experts_would_be_those_of_another_micro_batch_where_layers_are_computed_again() -> None:
    replay = (*EXPERTS, "algorithm.routing_replay=true", "algorithm.old_log_probs='recompute'")
    check_launch(load_config(["arithmetic.toml"], replay), machine=LAPTOP, vocab_size=64)
    again = ("megatron.recompute_granularity='full'", "cluster.gpus_per_process=1")
    assert "a layer that is computed again would take the next" in refusal(*replay, *again, machine=SERVER)


def test_memory_counts_the_experts_that_a_rank_holds(tmp_path: Path) -> None:
    """A file of holes: 2 GiB of experts, in fp32; all of them on each of four ranks would take 28 GiB with the rest."""
    values = {
        "num_hidden_layers": 4, "num_attention_heads": 4, "hidden_size": 64, "vocab_size": 64,
        "max_position_embeddings": 512, "head_dim": 32, "num_experts": 4, "num_experts_per_tok": 2,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(values))
    entry = {"dtype": "F32", "shape": [2**29], "data_offsets": [0, 2**31]}
    header = json.dumps({"model.layers.0.mlp.experts.0.up_proj.weight": entry}).encode()
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + 2**31)
    run = (f"model.path={str(tmp_path)!r}", "layout.dp=4")
    assert "need about 28 GiB of memory, this machine has 24" in refusal(*run)
    check_launch(load_config(["arithmetic.toml"], [*run, "layout.ep=4"]), machine=LAPTOP, vocab_size=64)
