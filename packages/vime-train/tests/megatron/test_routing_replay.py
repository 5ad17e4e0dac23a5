"""Routing replay: a later step of an iteration goes through the experts that the first weights chose, in any layout."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

LAYOUTS = [{}, {"dp": 2, "ep": 2}, {"cp": 2, "tp": 2}, {"pp": 2, "vpp": 2}]
DESCENT = {"lr": 400.0, "adam_eps": 1000.0, "clip_grad": 1e3}
EXPERTS = {"mlp_only_layers": [1]}
Chosen = list[list[torch.Tensor]]


def scored(model: torch.nn.Module, rollouts: Sequence[Any]) -> tuple[Chosen, list[Any]]:
    """What each sample's tokens go through, layer by layer, and the rollouts with log-probs of this model."""
    chosen: Chosen = []
    again = []
    for rollout in rollouts:
        samples = []
        for sample in rollout.samples:
            ids = torch.tensor(sample.tokens)[None]
            with torch.no_grad():
                output = model(ids, output_router_logits=True)
            chosen.append([logits.topk(model.config.num_experts_per_tok).indices for logits in output.router_logits])
            scores = output.logits[0].log_softmax(-1)[:-1].gather(1, ids[0, 1:, None])[-sample.response_length :, 0]
            samples.append(replace(sample, rollout_log_probs=tuple(scores.tolist())))
        again.append(replace(rollout, samples=tuple(samples)))
    return chosen, again


def route(model: torch.nn.Module, chosen: Chosen) -> None:
    """Make transformers' routers take these experts, sample after sample."""
    gates = [layer.mlp.gate for layer in model.model.layers if hasattr(layer.mlp, "gate")]
    for number, gate in enumerate(gates):
        waiting = deque(sample[number] for sample in chosen)

        def forward(hidden: torch.Tensor, gate: Any = gate, waiting: deque[torch.Tensor] = waiting) -> Any:
            logits = torch.nn.functional.linear(hidden.reshape(-1, gate.hidden_dim), gate.weight)
            experts = waiting.popleft()
            scores = logits.softmax(-1).gather(1, experts)
            return logits, scores / scores.sum(-1, keepdim=True), experts

        gate.forward = forward


@pytest.fixture(scope="module")
def middle() -> dict[str, Path]:
    """The weights after the first step, made once."""
    return {}


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_later_step_is_routed_as_the_tokens_were_scored(
    layout: dict[str, int],
    start: Callable[..., Any],
    run_config: Callable[..., Any],
    plan_batches: Callable[..., Any],
    rollouts: Any,
    oracle_loss: Callable[..., torch.Tensor],
    tiny_model: Callable[..., Path],
    middle: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    from transformers import AutoModelForCausalLM

    directory = tiny_model("qwen3_moe", **EXPERTS)
    algorithm = {"old_log_probs": "recompute", "routing_replay": True}
    if not middle:
        config = run_config({}, algorithm=algorithm, optimizer=DESCENT)
        job = start(config, directory)
        job.train(plan_batches(config, only=rollouts[:8]))
        middle["after"] = tmp_path_factory.mktemp("middle") / "model"
        job.call("export", str(middle["after"]))
    load = AutoModelForCausalLM.from_pretrained
    first = load(directory, experts_implementation="eager").double()
    second = load(middle["after"], experts_implementation="eager").double()
    chosen, again = scored(first, rollouts[8:])
    otherwise, _ = scored(second, rollouts[8:])
    pairs = [pair for x, y in zip(chosen, otherwise, strict=True) for pair in zip(x, y, strict=True)]
    changed = sum(int((a.sort().values != b.sort().values).any(-1).sum()) for a, b in pairs)
    assert changed > 5, "routers change their mind"

    free = norm_of_gradient(second, oracle_loss(second, again, "rollout_mean"))
    route(second, chosen)
    loss = oracle_loss(second, again, "rollout_mean")
    expected = norm_of_gradient(second, loss)
    assert free != pytest.approx(expected, rel=1e-2)

    config = run_config(layout, algorithm=algorithm, optimizer=DESCENT)
    _, report = start(config, directory).train(plan_batches(config, steps=[8, 4]))
    assert report["loss"] == pytest.approx(float(loss.detach()), rel=1e-4)
    assert report["grad_norm"] == pytest.approx(expected, rel=1e-4)


def norm_of_gradient(model: torch.nn.Module, loss: torch.Tensor) -> float:
    model.zero_grad()
    loss.backward()
    return float(torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm())


def test_every_iteration_notes_its_own_routes_and_other_steps_are_free(
    start: Callable[..., Any],
    run_config: Callable[..., Any],
    plan_batches: Callable[..., Any],
    tiny_model: Callable[..., Path],
) -> None:
    """The first step of an iteration is that of a run without replay, also after steps that use none of the notes."""
    reports = []
    for replayed in (False, True):
        algorithm = {"advantage": "gae", "old_log_probs": "recompute", "routing_replay": replayed}
        config = run_config({"dp": 2}, algorithm=algorithm, optimizer=DESCENT)
        job = start(config, tiny_model("qwen3_moe", **EXPERTS))
        batches = plan_batches(config)
        before = [job.call_batch("supervised_step", batches, lr=1.0)[0], *job.train(batches, critic_only=True)]
        supervised = job.call_batch("supervised_step", batches, lr=300.0)[0]
        reports.append([*before, supervised, *job.train(batches), *job.train(batches)])
    assert reports[0] == reports[1]
