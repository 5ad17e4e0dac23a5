"""Models with experts: their step is transformers', their weights go out as they came, and so do checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from vime_train.megatron._architecture import read_architecture

DESCENT = {"lr": 100.0, "adam_eps": 1000.0, "clip_grad": 1e3}
MIXED = {"mlp_only_layers": [1]}
UNNORMALISED = {"norm_topk_prob": False, "decoder_sparse_step": 2, "num_experts_per_tok": 3}
ONE_OF_EACH = {"norm_topk_prob": False, "num_experts_per_tok": 1}


def balance(model: torch.nn.Module, micro_batches: Sequence[Sequence[Sequence[int]]]) -> list[torch.Tensor]:
    """Equation 4 of arXiv:2101.03961 over the tokens of each micro-batch, summed over layers; the least is a layer."""
    config = model.config
    found = []
    for samples in micro_batches:
        by_sample = [model(torch.tensor(tokens)[None], output_router_logits=True).router_logits for tokens in samples]
        total = torch.zeros((), dtype=torch.float64)
        for logits in (torch.cat(layer) for layer in zip(*by_sample, strict=True)):
            chosen = torch.zeros_like(logits).scatter(1, logits.topk(config.num_experts_per_tok).indices, 1.0)
            share = chosen.sum(0) / chosen.sum()
            total = total + config.num_experts * (share * logits.softmax(-1).mean(0)).sum()
        found.append(total)
    return found


@pytest.mark.parametrize(
    ("options", "layout", "coefficient", "per_token"),
    [
        (MIXED, {}, 0.0, False),
        (UNNORMALISED, {}, 0.0, False),
        (ONE_OF_EACH, {"tp": 2, "ep": 2}, 0.0, True),
        (MIXED, {}, 0.05, False),
        (MIXED, {}, 0.05, True),
        (MIXED, {"dp": 2, "ep": 2}, 0.05, False),
        (MIXED, {"dp": 2, "ep": 2}, 0.05, True),
    ],
    ids=str,
)
def test_a_step_is_that_of_transformers(
    options: dict[str, object],
    layout: dict[str, int],
    coefficient: float,
    per_token: bool,
    start: Callable[..., Any],
    run_config: Callable[..., Any],
    plan_batches: Callable[..., Any],
    rollouts: Any,
    oracle_loss: Callable[..., torch.Tensor],
    tiny_model: Callable[..., Path],
    read_weights: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """In fp64; the auxiliary loss is the mean over micro-batches, or over their places with a loss per token."""
    from transformers import AutoModelForCausalLM

    directory = tiny_model("qwen3_moe", **options)
    config = run_config(
        layout,
        optimizer=DESCENT,
        train={"router_aux_loss_coefficient": coefficient, "calculate_per_token_loss": per_token},
    )
    batches = plan_batches(config)
    model = AutoModelForCausalLM.from_pretrained(directory, experts_implementation="eager").double()
    loss = oracle_loss(model, rollouts, "rollout_mean")
    expected = loss
    if coefficient:
        members = [
            [batch.tokens[i] for i in micro_batch]
            for batch in batches
            for micro_batch in batch.schedule.micro_batch_indices
        ]
        places = torch.tensor([sum(map(len, samples)) if per_token else 1 for samples in members])
        assert len(members) > 4
        expected = expected + coefficient * (torch.stack(balance(model, members)) * places / places.sum()).sum()
    expected.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}

    job = start(config, directory)
    (report,) = job.train(batches)
    job.call("export", str(tmp_path / "out"))
    assert report["loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    norm = torch.stack([gradient.norm() for gradient in gradients.values()]).norm()
    assert report["grad_norm"] == pytest.approx(float(norm), rel=1e-5)
    before, after = load_file(directory / "model.safetensors"), read_weights(tmp_path / "out")
    for name, gradient in by_expert(gradients).items():
        moved = before[name] - (DESCENT["lr"] * gradient / (gradient.abs() + DESCENT["adam_eps"])).numpy()
        np.testing.assert_allclose(after[name], moved, atol=1e-5, err_msg=name)


def by_expert(gradients: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """transformers computes with the experts of a layer in one tensor, and saves them one by one."""
    found: dict[str, torch.Tensor] = {}
    for name, gradient in gradients.items():
        layer, fused, part = name.partition(".experts.")
        if not fused:
            found[name] = gradient
        elif part == "gate_up_proj":
            for expert, both in enumerate(gradient):
                gate, up = both.chunk(2)
                found |= {
                    f"{layer}.experts.{expert}.gate_proj.weight": gate,
                    f"{layer}.experts.{expert}.up_proj.weight": up,
                }
        else:
            found |= {f"{layer}.experts.{expert}.{part}.weight": one for expert, one in enumerate(gradient)}
    return found


LAYOUTS = [
    {},
    {"tp": 2},
    {"pp": 2, "vpp": 2},
    {"dp": 2, "ep": 2},
    {"tp": 2, "pp": 2, "ep": 2},
    {"cp": 2, "dp": 2, "ep": 4},
]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_an_export_is_what_was_loaded(
    layout: dict[str, int],
    tied: bool,
    start: Callable[..., Any],
    run_config: Callable[..., Any],
    tiny_model: Callable[..., Path],
    tmp_path: Path,
) -> None:
    model = tiny_model("qwen3_moe", tied=tied, **MIXED)
    start(run_config(layout), model).call("export", str(tmp_path / "out"))
    before, after = load_file(model / "model.safetensors"), load_file(tmp_path / "out" / "model.safetensors")
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        np.testing.assert_array_equal(after[name], tensor, err_msg=name)


@pytest.mark.parametrize(
    ("layout", "other"), [({"dp": 2, "ep": 2}, {"tp": 2}), ({"tp": 2, "pp": 2, "ep": 2}, {"dp": 2})], ids=str
)
def test_a_checkpoint_goes_on_bit_for_bit_and_in_another_layout_to_rounding(
    layout: dict[str, int],
    other: dict[str, int],
    start: Callable[..., Any],
    run_config: Callable[..., Any],
    plan_batches: Callable[..., Any],
    tiny_model: Callable[..., Path],
    read_weights: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """With a reference and a critic beside the policy, which have experts too."""
    sections = {
        "algorithm": {"advantage": "gae", "old_log_probs": "recompute", "kl": {"coefficient": 0.5}},
        "critic": {"lr": 10.0},
        "optimizer": {**DESCENT, "lr": 10.0},
    }
    config = run_config(layout, **sections)
    batches = plan_batches(config)
    job = start(config, tiny_model("qwen3_moe", **MIXED))
    job.train(batches)
    job.call("save", str(tmp_path / "checkpoint"))
    followed = job.train(batches)
    job.call("export", str(tmp_path / "followed"))
    assert followed[0]["kl"] > 0
    assert followed[0]["value_loss"] > 0

    resumed = start(config, tiny_model("qwen3_moe", **MIXED))
    assert set(resumed.call("load", str(tmp_path / "checkpoint"))) == {"exact"}
    assert resumed.train(batches) == followed
    resumed.call("export", str(tmp_path / "resumed"))
    wanted = read_weights(tmp_path / "followed")
    for name, tensor in read_weights(tmp_path / "resumed").items():
        np.testing.assert_array_equal(tensor, wanted[name], err_msg=name)

    elsewhere = run_config(other, **sections)
    moved = start(elsewhere, tiny_model("qwen3_moe", **MIXED))
    assert set(moved.call("load", str(tmp_path / "checkpoint"))) == {"weights"}
    (report,) = moved.train(plan_batches(elsewhere))
    for name in ("loss", "kl", "value_loss", "grad_norm"):
        assert report[name] == pytest.approx(followed[0][name], rel=1e-4), name


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"num_local_experts": 0}, "no layer has any (num_experts = 0)"),
        ({"mlp_only_layers": [0, 1, 2, 3]}, "no layer has any (num_experts = 4)"),
        ({"num_experts_per_tok": 5}, "num_experts_per_tok = 5 of num_experts = 4: give at most 4"),
        ({"num_experts_per_tok": 1}, "the router would never learn"),
    ],
    ids=str,
)
def test_experts_that_cannot_be_trained_are_refused(
    change: dict[str, object], told: str, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    config = json.loads((tiny_model("qwen3_moe") / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(ValueError, match="read_architecture: ") as error:
        read_architecture(str(tmp_path))
    assert told in str(error.value)
