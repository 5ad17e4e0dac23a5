"""Every algorithm and option through the trainer: its loss and gradient are those of the formulas, in any layout.

Laws C2 and T1: the formulas are written out in fp64 in `_formulas.py` for whole responses, from transformers' logits.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch


def _load_formulas() -> ModuleType:
    import sys

    name = "_megatron_formulas"
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / "_formulas.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


FORMULAS = _load_formulas()
DESCENT = {"lr": 100.0, "adam_eps": 1000.0, "clip_grad": 1e3}
WIDE = {"dp": 2, "cp": 2}
DEEP = {"tp": 2, "pp": 2}
IN_DEEP = ("gspo", "ppo", "reinforce_plus_plus", "distillation")


def section_of(name: str, other: Path) -> dict[str, object]:
    """The case's section with the other model as its reference or teacher."""
    section = dict(FORMULAS.CASES[name].section)
    if "kl" in section:
        section["kl"] = {**section["kl"], "reference": str(other)}
    if "distillation" in section:
        section["distillation"] = {**section["distillation"], "teacher": str(other)}
    return section


@pytest.fixture(scope="module")
def policy(tiny_model: Callable[..., Path]) -> torch.nn.Module:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny_model()).double()


@pytest.fixture(scope="module")
def scored(policy: torch.nn.Module, tiny_model: Callable[..., Path], rollouts: object) -> list[object]:
    """The saved batch under the policy, with its graph, and under another model of another family."""
    from transformers import AutoModelForCausalLM

    other = AutoModelForCausalLM.from_pretrained(tiny_model("llama")).double()
    found = []
    for rollout in rollouts:
        for sample in rollout.samples:
            ids = torch.tensor(sample.tokens)[None]
            span = slice(-sample.response_length - 1, -1)
            logits = policy(ids).logits[0, span].log_softmax(-1)
            targets = ids[0, -sample.response_length :, None]
            with torch.no_grad():
                reference = other(ids).logits[0, span].log_softmax(-1).gather(1, targets)[:, 0]
            found.append(
                FORMULAS.Scored(
                    rollout_id=rollout.rollout_id,
                    group_id=rollout.group_id,
                    reward=rollout.reward,
                    mask=torch.tensor(sample.loss_mask, dtype=torch.float64),
                    engine=torch.tensor(sample.rollout_log_probs, dtype=torch.float64),
                    scores=logits.gather(1, targets)[:, 0],
                    entropy=-(logits.exp() * logits).sum(-1),
                    reference=reference,
                )
            )
    return found


@pytest.mark.parametrize(
    ("name", "layout"),
    [*((name, WIDE) for name in FORMULAS.CASES), *((name, DEEP) for name in IN_DEEP)],
    ids=str,
)
def test_a_step_is_that_of_the_formulas(
    name: str,
    layout: dict[str, int],
    start: Callable[..., object],
    run_config: Callable[..., object],
    plan_batches: Callable[..., object],
    policy: torch.nn.Module,
    scored: list[object],
    tiny_model: Callable[..., Path],
    read_weights: Callable[..., object],
    tmp_path: Path,
) -> None:
    loss = FORMULAS.expected(FORMULAS.CASES[name], scored)
    parameters = dict(policy.named_parameters())
    gradients = torch.autograd.grad(loss, list(parameters.values()), retain_graph=True)
    norm = float(torch.stack([gradient.norm() for gradient in gradients]).norm())
    assert norm > 1e-3, "the case would prove nothing"

    config = run_config(layout, algorithm=section_of(name, tiny_model("llama")), optimizer=DESCENT)
    job = start(config)
    (report,) = job.train(plan_batches(config))
    job.call("export", str(tmp_path / "out"))

    assert report["loss"] == pytest.approx(float(loss.detach()), rel=2e-5, abs=1e-6)
    assert report["grad_norm"] == pytest.approx(norm, rel=2e-5)
    before, after = read_weights(tiny_model()), read_weights(tmp_path / "out")
    for (weight, _), gradient in zip(parameters.items(), gradients, strict=True):
        step = DESCENT["lr"] * gradient / (gradient.abs() + DESCENT["adam_eps"])
        np.testing.assert_allclose(after[weight], before[weight] - step.numpy(), atol=1e-5, err_msg=weight)


def test_the_cases_differ_from_each_other(scored: list[object]) -> None:
    """Otherwise an option that does nothing would pass."""
    losses = {name: float(FORMULAS.expected(case, scored).detach()) for name, case in FORMULAS.CASES.items()}
    same = [
        (one, other) for one in losses for other in losses if one < other and abs(losses[one] - losses[other]) < 1e-6
    ]
    assert not same


def test_policy_reference_and_teacher_are_scored_at_the_sampling_temperature(
    start: Callable[..., object],
    run_config: Callable[..., object],
    plan_batches: Callable[..., object],
    tiny_model: Callable[..., Path],
    tmp_path: Path,
) -> None:
    """Temperature 1/2 is temperature 1 of models whose heads are doubled (reference fault #2085)."""
    other = tiny_model("llama")
    found = []
    for policy, beside, temperature in (
        (tiny_model(), other, 0.5),
        (doubled(tiny_model(), tmp_path / "policy"), doubled(other, tmp_path / "other"), 1.0),
    ):
        section = {
            "old_log_probs": "recompute",
            "entropy_coefficient": 0.1,
            "kl": {"coefficient": 0.1, "reference": str(beside)},
            "distillation": {"coefficient": 0.1, "teacher": str(beside)},
        }
        config = run_config({"dp": 2}, algorithm=section, rollout={"temperature": temperature})
        (report,) = start(config, policy).train(plan_batches(config))
        found.append(report)
    for name in ("loss", "kl", "entropy", "reverse_kl"):
        assert found[0][name] == pytest.approx(found[1][name], rel=1e-5), name


def doubled(model: Path, directory: Path) -> Path:
    """A copy of a model with twice its logits."""
    import shutil

    from safetensors.torch import load_file, save_file

    shutil.copytree(model, directory)
    weights = load_file(directory / "model.safetensors")
    weights["lm_head.weight"] = weights["lm_head.weight"] * 2
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    return directory
