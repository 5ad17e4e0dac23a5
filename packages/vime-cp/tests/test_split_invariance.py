"""C2: for every split over micro-batches x DP x CP and every aggregation, value and gradient equal the fp64 oracle."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vime_cp import Aggregation, ContextParallel, pack_micro_batch, pack_response, sample_weights, weighted_sum

if TYPE_CHECKING:
    from types import ModuleType

CASES = [
    (aggregation, count_masked)
    for aggregation in Aggregation
    for count_masked in (False, True)
    if not (count_masked and aggregation in {Aggregation.TOKEN_MEAN, Aggregation.CONSTANT})
]
LAYOUTS = ["zigzag", "contiguous"]


def random_plan(seed: int, count: int, dp: int) -> list[list[list[int]]]:
    """Micro-batches of every DP rank, equally many each; some are empty, and siblings end up anywhere."""
    rng = random.Random(seed)
    number = rng.randint(1, 3)
    plan: list[list[list[int]]] = [[[] for _ in range(number)] for _ in range(dp)]
    for i in rng.sample(range(count), count):
        plan[rng.randrange(dp)][rng.randrange(number)].append(i)
    return plan


def step_weights(aggregation: str, samples: list[Any], count_masked: bool) -> torch.Tensor:
    ids: dict[str, Any] = {
        "rollout_mean": {"rollout_ids": [s.rollout_id for s in samples]},
        "prompt_mean": {"prompt_ids": [s.prompt_id for s in samples]},
        "constant": {"constant": 37.5},
    }.get(aggregation, {})
    return sample_weights(aggregation, [int(s.mask.sum()) for s in samples], count_masked=count_masked, **ids)


def split_sum(
    oracle: ModuleType,
    params: list[torch.Tensor],
    samples: list[Any],
    weights: torch.Tensor,
    cps: list[ContextParallel],
    pad_multiple: int,
) -> torch.Tensor:
    """The partial sums of one micro-batch, added over the CP ranks."""
    total = params[0].new_zeros(())
    for cp in cps:
        batch = pack_micro_batch(
            [s.tokens for s in samples],
            [s.response_length for s in samples],
            [s.mask for s in samples],
            cp=cp,
            pad_multiple=pad_multiple,
        )
        new = oracle.log_probs(params, batch.tokens[0], batch.position_ids[0], batch.labels)
        old = pack_response([s.old_log_probs for s in samples], batch)
        advantages = pack_response([s.advantages for s in samples], batch)
        loss = oracle.token_loss(new, old, advantages)
        total = total + weighted_sum(loss, batch.mask, weights, batch.sample_index)
    return total


def gradient(loss: torch.Tensor, params: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, params, retain_graph=True)])


def assert_invariant(
    oracle: ModuleType, seed: int, count: int, cp: int, dp: int, layout: str, dtype: torch.dtype, tolerance: float
) -> None:
    samples = oracle.random_samples(seed, count, dtype=dtype)
    params = oracle.parameters(seed, dtype)
    exact_samples = oracle.random_samples(seed, count, dtype=dtype)
    exact_params = [p.detach().double().requires_grad_() for p in params]
    for i, sample in enumerate(exact_samples):
        columns = {"advantages": sample.advantages.double(), "old_log_probs": sample.old_log_probs.double()}
        exact_samples[i] = oracle.replace(sample, **columns)
    losses = [oracle.sample_loss(exact_params, s) for s in exact_samples]
    plan = random_plan(seed, count, dp)
    cps = [
        ContextParallel(rank=r, size=cp, layout=layout, sequence_align=1 + seed % 2)  # type: ignore[arg-type]
        for r in range(cp)
    ]
    for aggregation, count_masked in CASES:
        weights = step_weights(aggregation, samples, count_masked).to(dtype)
        whole = oracle.objective(aggregation, samples, losses, count_masked=count_masked, constant=37.5)
        split = params[0].new_zeros(())
        for rank in plan:
            for members in rank:
                held = [samples[i] for i in members]
                split = split + split_sum(oracle, params, held, weights[members], cps, pad_multiple=1 + seed % 3)
        assert torch.allclose(split.double(), whole, rtol=tolerance, atol=tolerance), aggregation
        expected = gradient(whole + 0 * exact_params[0].sum() + 0 * exact_params[1].sum(), exact_params)
        assert torch.allclose(gradient(split, params).double(), expected, rtol=tolerance, atol=tolerance), aggregation


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dp", [1, 2, 4])
@pytest.mark.parametrize("cp", [1, 2, 3, 4, 8])
def test_C2_value_and_gradient_do_not_depend_on_the_split(oracle: ModuleType, cp: int, dp: int, layout: str) -> None:
    assert_invariant(oracle, 10 * cp + dp, 9, cp, dp, layout, torch.float64, 1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("cp", [1, 2, 4])
def test_C2_in_fp32(oracle: ModuleType, cp: int, layout: str) -> None:
    assert_invariant(oracle, cp, 9, cp, 2, layout, torch.float32, 1e-6)


@given(
    seed=st.integers(0, 100_000),
    count=st.integers(1, 7),
    cp=st.sampled_from([1, 2, 3, 4, 8]),
    dp=st.sampled_from([1, 2, 4]),
    layout=st.sampled_from(LAYOUTS),
)
def test_C2_searched(oracle: ModuleType, seed: int, count: int, cp: int, dp: int, layout: str) -> None:
    assert_invariant(oracle, seed, count, cp, dp, layout, torch.float64, 1e-12)
