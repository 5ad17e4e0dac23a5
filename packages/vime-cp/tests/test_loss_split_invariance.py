"""C2 for every loss: over micro-batches x DP x CP, value and gradient equal the fp64 whole, with NaN where masked."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vime_cp import (
    ContextParallel,
    PackedMicroBatch,
    SimulatedGroup,
    cispo_loss,
    distillation_loss,
    entropy_bonus,
    gspo_loss,
    icepop,
    kl,
    log_probs_and_entropy,
    mis,
    off_policy_sequence_mask,
    pack_micro_batch,
    pack_response,
    policy_loss,
    sample_weights,
    sft_loss,
    simulate,
    tis,
    value_loss,
    weighted_sum,
)

if TYPE_CHECKING:
    from types import ModuleType

COLUMNS = ("old", "advantages", "ref", "rollout", "returns", "old_values")


def token_losses(c: dict[str, torch.Tensor], batch: PackedMicroBatch) -> dict[str, torch.Tensor]:
    """Every loss as a trainer calls it, on one rank's positions."""
    new, old, advantages, mask = c["new"], c["old"], c["advantages"], batch.mask
    whole: dict[str, Any] = {"sample_index": batch.sample_index, "num_samples": batch.num_samples, "cp": batch.cp}
    ppo = policy_loss(new, old, advantages, mask=mask).loss
    ratio = torch.exp(torch.where(mask != 0, new - old, 0))
    sequence = mis(old, c["rollout"], level="sequence", low=0.5, high=2.0, veto=0.75, mask=mask, **whole)
    geometric = mis(old, c["rollout"], level="geometric", mode="truncate", low=0.97, high=1.03, mask=mask, **whole)
    return {
        "ppo": ppo,
        "ppo, clip-higher and dual clip": policy_loss(
            new, old, advantages, clip_low=0.1, clip_high=0.3, dual_clip=1.5, mask=mask
        ).loss,
        "cispo": cispo_loss(new, old, advantages, clip_high=0.3, mask=mask).loss,
        "gspo": gspo_loss(new, old, advantages, clip_low=0.1, clip_high=0.15, mask=mask, **whole).loss,
        "kl k1": kl(new, c["ref"], "k1", mask=mask),
        "kl k2": kl(new, c["ref"], "k2", mask=mask),
        "kl k3": kl(new, c["ref"], "k3", mask=mask),
        "kl low variance": kl(new, c["ref"], "low_variance", mask=mask),
        "kl unbiased": kl(new, c["ref"], "k3", importance_weight=ratio, mask=mask),
        "entropy": entropy_bonus(c["entropy"], 0.3, mask=mask),
        "value": value_loss(c["values"], c["returns"], old_values=c["old_values"], mask=mask).loss,
        "value, no clip": value_loss(c["values"], c["returns"], mask=mask).loss,
        "sft": sft_loss(new, mask=mask),
        "distillation": distillation_loss(new, c["ref"], old_log_probs=old, mask=mask),
        "ppo, off-policy sequences masked": ppo
        * off_policy_sequence_mask(new, old, advantages, delta=0.02, mask=mask, **whole),
        "ppo with tis": ppo * tis(old, c["rollout"], high=1.1, mask=mask).weights,
        "ppo with icepop": ppo * icepop(old, c["rollout"], low=0.8, high=1.2, mask=mask).weights,
        "ppo with sequence mis": ppo * sequence.weights,
        "ppo with geometric mis": ppo * geometric.weights,
    }


def random_columns(samples: list[Any], params: list[torch.Tensor], oracle: ModuleType, seed: int) -> list[Any]:
    """Columns near the model's own log-probs, so that ratios fall on both sides of every clip."""
    gen = torch.Generator().manual_seed(seed)
    columns = []
    for sample in samples:
        scores = oracle.response_scores(params, sample.tokens, sample.response_length)
        near = {name: scores["new"].detach() for name in ("old", "ref", "rollout")}
        near["rollout"] = near["old"] = near["old"] + 0.2 * torch.randn(len(near["old"]), generator=gen).double()
        near["rollout"] = near["rollout"] + 0.1 * torch.randn(len(near["old"]), generator=gen).double()
        near |= {name: torch.randn(len(near["old"]), generator=gen).double() for name in COLUMNS if name not in near}
        near["ref"] = near["ref"] + torch.randn(len(near["old"]), generator=gen).double()
        columns.append(near)
    return columns


def poisoned(column: torch.Tensor, mask: torch.Tensor, seed: int) -> torch.Tensor:
    """The column with NaN or an infinity at every masked position."""
    poison = random.Random(seed).choice([torch.nan, torch.inf, -torch.inf])
    return torch.where(mask != 0, column, poison)


def split_losses(
    oracle: ModuleType,
    params: list[torch.Tensor],
    held: list[tuple[Any, dict[str, torch.Tensor]]],
    weights: torch.Tensor,
    cp: ContextParallel,
    seed: int,
) -> dict[str, torch.Tensor]:
    """One rank's partial sums of one micro-batch, for every loss."""
    samples = [sample for sample, _ in held]
    masks = [sample.mask for sample in samples]
    batch = pack_micro_batch([s.tokens for s in samples], [s.response_length for s in samples], masks, cp=cp)
    columns = {
        name: pack_response([poisoned(c[name], s.mask, seed) for s, c in held], batch, fill=torch.nan).to(
            params[0].dtype
        )
        for name in COLUMNS
    }
    inputs = batch.tokens[0], batch.position_ids[0]
    scored = log_probs_and_entropy(
        oracle.logits(params, *inputs), batch.labels, entropy=True, mask=batch.mask, chunk_size=3
    )
    assert scored.entropy is not None
    columns |= {"new": scored.log_probs, "entropy": scored.entropy, "values": oracle.values(params, *inputs)}
    losses = token_losses(columns, batch)
    return {name: weighted_sum(x, batch.mask, weights, batch.sample_index) for name, x in losses.items()}


def gradient(loss: torch.Tensor, params: list[torch.Tensor]) -> torch.Tensor:
    grads = torch.autograd.grad(loss, params, retain_graph=True, allow_unused=True)
    return torch.cat(
        [torch.zeros_like(p).flatten() if g is None else g.flatten() for p, g in zip(params, grads, strict=True)]
    )


def whole_losses(
    oracle: ModuleType, params: list[torch.Tensor], samples: list[Any], columns: list[Any], weights: torch.Tensor
) -> dict[str, torch.Tensor]:
    totals = {name: params[0].new_zeros(()) for name in oracle.LOSSES}
    for sample, column, weight in zip(samples, columns, weights, strict=True):
        scores = oracle.response_scores(params, sample.tokens, sample.response_length)
        mask = sample.mask.double()
        for name, loss in oracle.LOSSES.items():
            totals[name] = totals[name] + weight * (loss(column | scores | {"mask": mask}) * mask).sum()
    return totals


def assert_invariant(
    oracle: ModuleType,
    loss_oracle: ModuleType,
    *,
    seed: int,
    count: int,
    cp: int,
    dp: int,
    layout: Any,
    dtype: torch.dtype = torch.float64,
    tolerance: float = 1e-12,
) -> None:
    """Compare the split in `dtype` with the whole in fp64, both from numbers that `dtype` holds exactly."""
    rng = random.Random(seed)
    samples, params = oracle.random_samples(seed, count), oracle.parameters(seed, dtype)
    exact_params = [p.detach().double().requires_grad_() for p in params]
    columns = [
        {name: column.to(dtype).double() for name, column in whole.items()}
        for whole in random_columns(samples, exact_params, loss_oracle, seed)
    ]
    aggregation = rng.choice(["rollout_mean", "token_mean"])
    ids = {"rollout_ids": [s.rollout_id for s in samples]} if aggregation == "rollout_mean" else {}
    weights = sample_weights(aggregation, [int(s.mask.sum()) for s in samples], **ids)
    whole = whole_losses(loss_oracle, exact_params, samples, columns, weights)
    split = {name: params[0].new_zeros(()) for name in whole}
    micro_batches: list[list[int]] = [[] for _ in range(dp * rng.randint(1, 3))]
    for i in range(count):
        rng.choice(micro_batches).append(i)
    for members in micro_batches:
        held = [(samples[i], columns[i]) for i in members]

        def one_rank(group: SimulatedGroup, held: Any = held, members: list[int] = members) -> dict[str, torch.Tensor]:
            rank = ContextParallel(rank=group.rank, size=cp, layout=layout, group=group)
            return split_losses(loss_oracle, params, held, weights[members], rank, seed)

        for part in simulate(cp, one_rank):
            split = {name: total + part[name] for name, total in split.items()}
    for name, expected in whole.items():
        assert torch.allclose(split[name].double(), expected, rtol=tolerance, atol=tolerance), name
        exact = gradient(expected + 0 * exact_params[0].sum(), exact_params)
        assert torch.allclose(gradient(split[name], params).double(), exact, rtol=tolerance, atol=tolerance), name


@pytest.mark.parametrize("dp", [1, 2, 4])
@pytest.mark.parametrize("cp", [1, 2, 3, 4, 8])
def test_C2_every_loss_over_the_grid(oracle: ModuleType, loss_oracle: ModuleType, cp: int, dp: int) -> None:
    for layout in ("zigzag", "contiguous"):
        assert_invariant(oracle, loss_oracle, seed=100 * cp + dp, count=8, cp=cp, dp=dp, layout=layout)


@pytest.mark.parametrize("cp", [1, 2, 4])
def test_C2_every_loss_in_fp32(oracle: ModuleType, loss_oracle: ModuleType, cp: int) -> None:
    assert_invariant(
        oracle, loss_oracle, seed=cp, count=8, cp=cp, dp=2, layout="zigzag", dtype=torch.float32, tolerance=1e-6
    )


@settings(max_examples=15)
@given(
    seed=st.integers(0, 100_000),
    count=st.integers(1, 6),
    cp=st.sampled_from([1, 2, 3, 4, 8]),
    layout=st.sampled_from(["zigzag", "contiguous"]),
)
def test_C2_every_loss_searched(
    oracle: ModuleType, loss_oracle: ModuleType, seed: int, count: int, cp: int, layout: str
) -> None:
    assert_invariant(oracle, loss_oracle, seed=seed, count=count, cp=cp, dp=2, layout=layout)
