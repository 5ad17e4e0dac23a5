"""GAE, discounted returns and REINFORCE++: equal to a loop from the end, for any mask and any CP split."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vime_cp import (
    Advantages,
    ContextParallel,
    PackedMicroBatch,
    SimulatedGroup,
    discounted_returns,
    dr_grpo_advantages,
    gae,
    gather_responses,
    generalized_advantages,
    pack_micro_batch,
    pack_response,
    reinforce_plus_plus_advantages,
    reinforce_plus_plus_baseline_advantages,
    simulate,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

FACTORS = [0.0, 0.5, 0.99, 1.0]


@pytest.mark.parametrize("gamma", FACTORS)
@pytest.mark.parametrize("time", [1, 2, 31, 32, 33, 127, 128, 129, 1000, 1025, 3000])
def test_scan_equals_the_loop(loss_oracle: ModuleType, time: int, gamma: float) -> None:
    rewards = torch.randn(3, time, generator=torch.Generator().manual_seed(time), dtype=torch.float64)
    result = discounted_returns(rewards, gamma=gamma)
    expected = [loss_oracle.returns(row, gamma, [1] * time) for row in rewards.tolist()]
    assert torch.allclose(result, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("lam", FACTORS)
@pytest.mark.parametrize("gamma", FACTORS)
@pytest.mark.parametrize("time", [1, 5, 200])
def test_gae_equals_the_loop(loss_oracle: ModuleType, time: int, gamma: float, lam: float) -> None:
    gen = torch.Generator().manual_seed(time)
    rewards, values = torch.randn(2, 4, time, generator=gen, dtype=torch.float64)
    mask = torch.rand(4, time, generator=gen) < 0.6
    mask[0], mask[1] = True, False
    result = generalized_advantages(rewards, values, gamma=gamma, lam=lam, mask=mask)
    for row in range(4):
        advantages, returns = loss_oracle.gae(
            rewards[row].tolist(), values[row].tolist(), gamma, lam, mask[row].tolist()
        )
        assert result.advantages[row].tolist() == pytest.approx(advantages, rel=1e-12, abs=1e-12)
        assert result.returns[row].tolist() == pytest.approx(returns, rel=1e-12, abs=1e-12)


def test_golden_values() -> None:
    """Two steps, by hand: errors 0 + 0.5 * 4 - 2 = 0 and 1 - 4 = -3; advantage 0 + 0.25 * -3."""
    result = generalized_advantages(torch.tensor([[0.0, 1.0]]), torch.tensor([[2.0, 4.0]]), gamma=0.5, lam=0.5)
    assert result.advantages.tolist() == [[-0.75, -3.0]]
    assert result.returns.tolist() == [[1.25, 1.0]]
    assert discounted_returns(torch.tensor([[1.0, 2.0, 4.0]]), gamma=0.5).tolist() == [[3.0, 4.0, 4.0]]


def test_masked_steps_are_passed_over_not_discounted() -> None:
    rewards, mask = torch.tensor([[0.0, 9.0, 9.0, 1.0]]), torch.tensor([[1, 0, 0, 1]])
    assert discounted_returns(rewards, gamma=0.5, mask=mask).tolist() == [[0.5, 0, 0, 1.0]]


@pytest.mark.parametrize("poison", [torch.nan, torch.inf])
def test_masked_values_reach_nothing(poison: float) -> None:
    rewards = torch.tensor([[0.0, poison, 1.0], [poison, poison, poison]])
    mask = torch.tensor([[1, 0, 1], [0, 0, 0]])
    result = generalized_advantages(rewards, rewards, gamma=0.5, mask=mask)
    assert result.returns.tolist() == [[0.5, 0, 1.0], [0, 0, 0]]
    assert discounted_returns(rewards, mask=mask).tolist() == [[1.0, 0, 1.0], [0, 0, 0]]


def test_arguments_are_left_alone_and_results_carry_no_graph() -> None:
    """slime 2.2: returns computed outside no_grad kept a graph, and the second micro-batch's backward failed."""
    rewards, values = torch.ones(2, 40, requires_grad=True), torch.ones(2, 40, requires_grad=True)
    result = generalized_advantages(rewards, values, gamma=0.9)
    assert not result.advantages.requires_grad
    assert not result.returns.requires_grad
    assert not discounted_returns(rewards).requires_grad
    batch = pack_micro_batch([torch.arange(4)], [2])
    local = gae(torch.ones(1, requires_grad=True), torch.ones(4, requires_grad=True), batch)
    assert not local.advantages.requires_grad
    assert not local.returns.requires_grad
    assert torch.equal(rewards, torch.ones(2, 40))
    assert torch.equal(values, torch.ones(2, 40))


def column(samples: list[Any], seed: int) -> list[torch.Tensor]:
    gen = torch.Generator().manual_seed(seed)
    return [torch.randn(s.response_length, generator=gen, dtype=torch.float64) for s in samples]


def pack(samples: list[Any], cp: ContextParallel) -> PackedMicroBatch:
    return pack_micro_batch(
        [s.tokens for s in samples], [s.response_length for s in samples], [s.mask for s in samples], cp=cp
    )


def over_ranks(
    samples: list[Any], cp: int, layout: Any, run: Callable[[PackedMicroBatch], torch.Tensor]
) -> list[list[torch.Tensor]]:
    """What each rank's local results amount to: whole responses, as every rank of the layout can gather them."""

    def one_rank(group: SimulatedGroup) -> list[torch.Tensor]:
        batch = pack(samples, ContextParallel(rank=group.rank, size=cp, layout=layout, group=group))
        return gather_responses(run(batch), batch, gradient="none")

    return simulate(cp, one_rank)


def scored(sample: Any) -> list[int]:
    """The mask, without a first token that has no predecessor."""
    mask = [int(m) for m in sample.mask.tolist()]
    return [0, *mask[1:]] if mask and sample.response_length == len(sample.tokens) else mask


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    count=st.integers(0, 6),
    cp=st.sampled_from([1, 2, 3, 4, 8]),
    layout=st.sampled_from(["zigzag", "contiguous"]),
)
def test_C2_token_advantages_over_cp(
    oracle: ModuleType, loss_oracle: ModuleType, seed: int, count: int, cp: int, layout: str
) -> None:
    """slime PR #2375: under CP the reward landed on an earlier token, or on a rank that held none."""
    rng = random.Random(seed)
    samples = oracle.random_samples(seed, count)
    gamma, lam, kl_coef = rng.choice([1.0, 0.9]), rng.choice([1.0, 0.8]), rng.choice([0.0, 0.3])
    rewards = torch.tensor([rng.uniform(-1, 1) for _ in samples], dtype=torch.float64)
    values, kl_values = column(samples, seed), column(samples, seed + 1)

    def poisoned(columns: list[torch.Tensor], batch: PackedMicroBatch) -> torch.Tensor:
        whole = [torch.where(s.mask != 0, c, torch.nan) for s, c in zip(samples, columns, strict=True)]
        return pack_response(whole, batch, fill=torch.nan).double()

    def run_gae(batch: PackedMicroBatch) -> Advantages:
        kl_local = poisoned(kl_values, batch)
        return gae(rewards, poisoned(values, batch), batch, kl=kl_local, kl_coef=kl_coef, gamma=gamma, lam=lam)

    def run_reinforce(batch: PackedMicroBatch) -> torch.Tensor:
        return reinforce_plus_plus_advantages(
            rewards, batch, kl=poisoned(kl_values, batch), kl_coef=kl_coef, gamma=gamma
        )

    def run_baseline(batch: PackedMicroBatch) -> torch.Tensor:
        return reinforce_plus_plus_baseline_advantages(rewards, batch, kl=poisoned(kl_values, batch), kl_coef=kl_coef)

    expected: dict[str, list[list[float]]] = {"advantages": [], "returns": [], "reinforce": [], "baseline": []}
    for i, sample in enumerate(samples):
        mask = scored(sample)
        token_rewards = loss_oracle.token_rewards(kl_values[i].tolist(), kl_coef, mask, float(rewards[i]))
        advantages, returns = loss_oracle.gae(token_rewards, values[i].tolist(), gamma, lam, mask)
        expected["advantages"].append(advantages)
        expected["returns"].append(returns)
        expected["reinforce"].append(loss_oracle.returns(token_rewards, gamma, mask))
        centred = zip(kl_values[i].tolist(), mask, strict=True)
        expected["baseline"].append([(float(rewards[i]) - kl_coef * k) * m for k, m in centred])
    for name, run in (
        ("advantages", lambda batch: run_gae(batch).advantages),
        ("returns", lambda batch: run_gae(batch).returns),
        ("reinforce", run_reinforce),
        ("baseline", run_baseline),
    ):
        for whole in over_ranks(samples, cp, layout, run):
            for got, exact in zip(whole, expected[name], strict=True):
                assert got.tolist() == pytest.approx(exact, rel=1e-12, abs=1e-12), name


@pytest.mark.parametrize("cp", [1, 2, 4, 8])
@pytest.mark.parametrize(("total", "response"), [(9, 3), (13, 3), (14, 3), (57, 20), (10, 6), (5, 4)])
def test_the_reward_is_at_the_last_response_token_whatever_rank_holds_it(cp: int, total: int, response: int) -> None:
    """slime 2.8: the reward went to CP rank 0's last element; for T=9, R=3, cp=2 that rank has none."""
    tokens = torch.arange(total)

    def one_rank(group: SimulatedGroup) -> list[torch.Tensor]:
        batch = pack_micro_batch([tokens], [response], cp=ContextParallel(rank=group.rank, size=cp, group=group))
        local = gae(torch.tensor([1.0]), torch.zeros(batch.local_length), batch, gamma=0.0)
        return gather_responses(local.advantages, batch, gradient="none")

    for (whole,) in simulate(cp, one_rank):
        assert whole.tolist() == [0.0] * (response - 1) + [1.0]


def test_a_fully_masked_response_gets_nothing() -> None:
    """slime 2.8: REINFORCE++ refused fully masked samples, which removing a sample produces."""
    batch = pack_micro_batch([torch.arange(5), torch.arange(4)], [3, 2], [torch.zeros(3), torch.ones(2)])
    result = reinforce_plus_plus_advantages(torch.tensor([7.0, 1.0]), batch)
    assert result.tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 0]


def test_critic_and_actor_share_one_reward() -> None:
    """slime 5.3-2: the critic's returns lacked the KL penalty that the actor's advantages had."""
    batch = pack_micro_batch([torch.arange(4)], [2])
    result = gae(torch.tensor([1.0]), torch.zeros(4), batch, kl=torch.ones(4), kl_coef=0.25)
    assert result.advantages.tolist() == result.returns.tolist() == [0, 0.5, 0.75, 0]


def test_reinforce_plus_plus_with_baseline_golden() -> None:
    batch = pack_micro_batch([torch.arange(3), torch.arange(3)], [1, 2])
    centred = dr_grpo_advantages([0.0, 1.0], group_ids=["p", "p"])
    result = reinforce_plus_plus_baseline_advantages(centred, batch, kl=torch.full((6,), 2.0), kl_coef=0.1)
    assert result.tolist() == pytest.approx([0, -0.7, 0, 0.3, 0.3, 0])


def test_a_filler_micro_batch_has_no_advantages() -> None:
    batch = pack_micro_batch([], [], pad_multiple=4)
    result = gae(torch.zeros(0), torch.zeros(batch.local_length), batch)
    assert result.advantages.tolist() == [0.0] * batch.local_length
    assert reinforce_plus_plus_advantages(torch.zeros(0), batch).tolist() == [0.0] * batch.local_length


BATCH = pack_micro_batch([torch.arange(4), torch.arange(3)], [2, 1])
ZEROS = torch.zeros(7)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: discounted_returns(torch.zeros(3)), r"rewards has shape \(3,\) .*\[batch, time\]"),
        (lambda: discounted_returns(torch.zeros(1, 3), gamma=1.1), "gamma is 1.1: give a factor from 0 to 1"),
        (lambda: discounted_returns(torch.zeros(1, 3), gamma=-0.1), "gamma is -0.1"),
        (lambda: discounted_returns(torch.zeros(1, 3), mask=torch.ones(1, 2)), r"mask has shape \(1, 2\)"),
        (lambda: generalized_advantages(torch.zeros(1, 3), torch.zeros(1, 2)), r"values has shape \(1, 2\)"),
        (lambda: generalized_advantages(torch.zeros(1, 3), torch.zeros(1, 3).double()), "values is torch.float64"),
        (lambda: generalized_advantages(torch.zeros(1, 3), torch.zeros(1, 3), lam=2), "lam is 2"),
        (lambda: gae(torch.zeros(2), torch.zeros(6), BATCH, mask=torch.ones(6)), r"values has shape \(6,\)"),
        (lambda: gae(torch.zeros(2), ZEROS, BATCH, kl=torch.zeros(6)), r"kl has shape \(6,\)"),
        (lambda: gae(torch.zeros(3), ZEROS, BATCH), r"rewards has shape \(3,\) .* 2 samples"),
        (lambda: gae(torch.zeros(2), ZEROS, BATCH, gamma=7), "gamma is 7"),
        (lambda: gae(torch.zeros(2), ZEROS, BATCH, lam=7), "lam is 7"),
        (lambda: reinforce_plus_plus_advantages(torch.zeros(3), BATCH), r"rewards has shape \(3,\)"),
        (lambda: reinforce_plus_plus_advantages(torch.zeros(2), BATCH, gamma=7), "gamma is 7"),
        (lambda: reinforce_plus_plus_baseline_advantages(torch.zeros(2), BATCH, kl=torch.zeros(6)), r"kl has|mask has"),
    ],
)
def test_bad_input_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
