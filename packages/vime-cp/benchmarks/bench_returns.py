"""GAE and discounted returns of 512 responses of 8,192 tokens against Python loops: python benchmarks/bench_returns.py

Each line is one run on this machine, the best of three with all sides in turn; compare the figures of a line.
Times are CPU times of one thread, so that other work on the machine does not count.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

from vime_cp import discounted_returns, generalized_advantages

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH, TIME, RUNS = 512, 8192, 3
GAMMA, LAM = 0.99, 0.95


def returns_step_by_step(rewards: torch.Tensor) -> torch.Tensor:
    """The usual loop over time, all rows at once."""
    result, later = torch.empty_like(rewards), torch.zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        later = rewards[:, t] + GAMMA * later
        result[:, t] = later
    return result


def returns_sample_by_sample(rewards: torch.Tensor) -> torch.Tensor:
    """The usual loop over samples and tokens, in Python numbers."""
    rows = []
    for row in rewards.tolist():
        later, reversed_row = 0.0, []
        for reward in reversed(row):
            later = reward + GAMMA * later
            reversed_row.append(later)
        rows.append(reversed_row[::-1])
    return torch.tensor(rows)


def gae_step_by_step(rewards: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    result, advantage = torch.empty_like(rewards), torch.zeros(len(rewards))
    next_value = torch.zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        error = rewards[:, t] + GAMMA * next_value - values[:, t]
        advantage = error + GAMMA * LAM * advantage
        result[:, t], next_value = advantage, values[:, t]
    return result, result + values


def gae_sample_by_sample(rewards: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rows = []
    for reward_row, value_row in zip(rewards.tolist(), values.tolist(), strict=True):
        advantage, next_value, reversed_row = 0.0, 0.0, []
        for reward, value in zip(reversed(reward_row), reversed(value_row), strict=True):
            advantage = reward + GAMMA * next_value - value + GAMMA * LAM * advantage
            next_value = value
            reversed_row.append(advantage)
        rows.append(reversed_row[::-1])
    result = torch.tensor(rows)
    return result, result + values


def gae_ours(rewards: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    result = generalized_advantages(rewards, values, gamma=GAMMA, lam=LAM)
    return result.advantages, result.returns


def best_ms(sides: list[Callable[[], object]]) -> list[float]:
    results = [side() for side in sides]
    for result in results[1:]:
        torch.testing.assert_close(result, results[0], rtol=1e-3, atol=1e-3)
    times: list[list[float]] = [[] for _ in sides]
    for _ in range(RUNS):
        for runs, side in zip(times, sides, strict=True):
            start = time.process_time()
            side()
            runs.append(1000 * (time.process_time() - start))
    return [min(runs) for runs in times]


def main() -> None:
    torch.set_num_threads(1)
    rewards, values = torch.randn(2, BATCH, TIME, generator=torch.Generator().manual_seed(0))
    print(
        f"| {BATCH} x {TIME} | loop per sample, ms | loop over time, ms | vime-cp, ms | faster |\n|---|---|---|---|---|"
    )
    cases: list[tuple[str, list[Callable[[], object]]]] = [
        (
            "discounted returns",
            [
                lambda: returns_sample_by_sample(rewards),
                lambda: returns_step_by_step(rewards),
                lambda: discounted_returns(rewards, gamma=GAMMA),
            ],
        ),
        (
            "GAE and its returns",
            [
                lambda: gae_sample_by_sample(rewards, values),
                lambda: gae_step_by_step(rewards, values),
                lambda: gae_ours(rewards, values),
            ],
        ),
    ]
    for name, sides in cases:
        per_sample, over_time, ours = best_ms(sides)
        faster = f"{per_sample / ours:.0f}x, {over_time / ours:.0f}x"
        print(f"| {name} | {per_sample:.0f} | {over_time:.0f} | {ours:.1f} | {faster} |", flush=True)


if __name__ == "__main__":
    main()
