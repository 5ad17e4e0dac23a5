"""Megatron's log-probs are transformers', and the difference to the engine's is measured over all ranks (law T2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

LAYOUTS = [{}, {"cp": 2}, {"tp": 2}, {"pp": 2}, {"pp": 2, "vpp": 2}, {"tp": 2, "cp": 2}]
MODELS = [("qwen3", {}), ("llama", {}), ("llama", {"llama3_rope": True}), ("qwen3", {"tied": True})]


def transformers_log_probs(directory: Path, tokens: Sequence[int], response_length: int) -> npt.NDArray[np.float64]:
    """One sequence at a time, without packing or padding."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(directory).float().eval()
    ids = torch.tensor(tokens)[None]
    with torch.no_grad():
        scores = model(ids).logits[0].double().log_softmax(-1)
    return scores[:-1].gather(1, ids[0, 1:, None])[-response_length:, 0].numpy()


@pytest.mark.parametrize(("family", "options"), MODELS, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_log_probs_are_those_of_transformers(
    layout: dict[str, int],
    family: str,
    options: dict[str, bool],
    start: Callable[..., object],
    run_config: Callable[..., object],
    plan_batches: Callable[..., object],
    tiny_model: Callable[..., Path],
    expected_log_probs: Callable[..., object],
) -> None:
    config = run_config(layout)
    model = tiny_model(family, **options)
    (batch,) = plan_batches(config)
    found = start(config, model).call_batch("log_probs", (batch,))
    scored = [by_rank for by_rank in found if by_rank is not None]
    assert len(scored) == config.layout.cp * config.layout.tp, "every rank of the last stage has them"
    for by_rank in scored:
        for position, log_probs in zip(batch.schedule.partition, by_rank, strict=True):
            expected, mask = expected_log_probs(model)[position]
            np.testing.assert_allclose(log_probs[mask], expected[mask], atol=2e-5)
            assert not log_probs[~mask].any()


@pytest.fixture(scope="module")
def expected_log_probs(rollouts: object) -> Callable[..., object]:
    """Log-probs and mask of every sample of the saved batch, once per model."""
    made: dict[Path, list[tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]]] = {}

    def get(model: Path) -> object:
        if model not in made:
            made[model] = [
                (
                    transformers_log_probs(model, sample.tokens, sample.response_length),
                    np.array(sample.loss_mask, dtype=bool),
                )
                for rollout in rollouts
                for sample in rollout.samples
            ]
        return made[model]

    return get


@pytest.mark.parametrize("layout", [{"dp": 2}, {"cp": 2}, {"dp": 2, "pp": 2}], ids=str)
def test_the_difference_is_measured_over_all_ranks_and_unmasked_tokens(
    layout: dict[str, int],
    start: Callable[..., object],
    run_config: Callable[..., object],
    plan_batches: Callable[..., object],
    tiny_model: Callable[..., Path],
    expected_log_probs: Callable[..., object],
    rollouts: object,
) -> None:
    config = run_config(layout)
    samples = [sample for rollout in rollouts for sample in rollout.samples]
    differences = np.concatenate(
        [
            np.abs(log_probs - np.array(sample.rollout_log_probs))[mask]
            for (log_probs, mask), sample in zip(expected_log_probs(tiny_model()), samples, strict=True)
        ]
    )
    found = start(config).call_batch("log_prob_difference", plan_batches(config))
    assert all(by_rank == found[0] for by_rank in found)
    assert found[0]["tokens"] == differences.size
    assert found[0]["max"] == pytest.approx(differences.max(), abs=1e-4)
    assert found[0]["mean"] == pytest.approx(differences.mean(), abs=1e-4)


def test_weights_that_are_one_step_old_show(
    start: Callable[..., object], run_config: Callable[..., object], plan_batches: Callable[..., object]
) -> None:
    config = run_config({"dp": 2})
    job = start(config)
    batches = list(plan_batches(config))
    own = [
        replace(batch, old_log_probs=tuple(log_probs))
        for batch, log_probs in zip(batches, job.call_batch("log_probs", batches), strict=True)
    ]
    assert job.call_batch("log_prob_difference", own)[0]["max"] == 0
    job.train(batches)
    assert job.call_batch("log_prob_difference", own)[0]["max"] > 1e-3


def test_recomputed_log_probs_make_the_first_ratio_one(
    start: Callable[..., object], run_config: Callable[..., object], plan_batches: Callable[..., object]
) -> None:
    """With the engine's log-probs, which the saved batch has at random, thousands of tokens would be clipped."""
    config = run_config({"cp": 2, "pp": 2}, algorithm={"old_log_probs": "recompute"})
    first, second = start(config).train(plan_batches(config, steps=[6, 6]))
    assert first["clip_fraction"] == 0
    assert abs(first["approx_kl"]) < 1e-6
    assert abs(second["approx_kl"]) > 1e-6
