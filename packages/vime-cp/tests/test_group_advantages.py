"""GRPO, Dr.GRPO and RLOO: grouping by id, one reward per rollout, and a slow oracle."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vime_cp import dr_grpo_advantages, grpo_advantages, rloo_advantages

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=14)


def unfold(samples: list[tuple[int, int]]) -> tuple[list[float], list[int], list[tuple[int, int]]]:
    """Rewards, group ids and rollout ids of samples given as (group, rollout within the group)."""
    rewards = [float((7 * group + 3 * rollout * rollout) % 5) for group, rollout in samples]
    return rewards, [group for group, _ in samples], samples


def by_definition(samples: list[tuple[int, int]], formula: Callable[[float, list[float]], float]) -> list[float]:
    """Advantage of each sample: the formula of its reward and the rewards of its group's rollouts, each once."""
    rewards, group_ids, rollout_ids = unfold(samples)
    rollouts: dict[int, dict[Any, float]] = defaultdict(dict)
    for reward, group, rollout in zip(rewards, group_ids, rollout_ids, strict=True):
        rollouts[group][rollout] = reward
    return [formula(r, list(rollouts[g].values())) for r, g in zip(rewards, group_ids, strict=True)]


def grpo_formula(reward: float, group: list[float]) -> float:
    if len(group) < 2 or len(set(group)) == 1:
        return 0.0
    return (reward - statistics.fmean(group)) / (statistics.stdev(group) + 1e-6)


def rloo_formula(reward: float, group: list[float]) -> float:
    return 0.0 if len(group) < 2 else reward - (sum(group) - reward) / (len(group) - 1)


@given(SAMPLES)
def test_equal_to_the_definition(samples: list[tuple[int, int]]) -> None:
    rewards, group_ids, rollout_ids = unfold(samples)
    ids: dict[str, Any] = {"group_ids": group_ids, "rollout_ids": rollout_ids}
    exact = torch.tensor(rewards, dtype=torch.float64)
    for function, formula in (
        (grpo_advantages, grpo_formula),
        (dr_grpo_advantages, lambda r, group: r - statistics.fmean(group)),
        (rloo_advantages, rloo_formula),
    ):
        assert function(exact, **ids).tolist() == pytest.approx(by_definition(samples, formula), abs=1e-12)


@given(SAMPLES, st.integers(-3, 3))
def test_laws(samples: list[tuple[int, int]], shift: int) -> None:
    rewards, group_ids, rollout_ids = unfold(samples)
    ids: dict[str, Any] = {"group_ids": group_ids, "rollout_ids": rollout_ids}
    exact = torch.tensor(rewards, dtype=torch.float64)
    first = {rollout: i for i, rollout in reversed(list(enumerate(rollout_ids)))}
    for function in (grpo_advantages, dr_grpo_advantages, rloo_advantages):
        result = function(exact, **ids)
        assert torch.allclose(function(exact + shift, **ids), result)
        assert all(result[i] == result[first[rollout]] for i, rollout in enumerate(rollout_ids)), "siblings share"
        for group in set(group_ids):
            assert sum(float(result[i]) for i in first.values() if group_ids[i] == group) == pytest.approx(0, abs=1e-9)


def test_slime_1414_ragged_groups_with_siblings() -> None:
    """slime #1414 and nine more, miles #2369: counts that differ made one giant group, siblings weighted its mean."""
    result = grpo_advantages(
        [0, 1, 1, 1, 2, 2, 4],
        group_ids=[0, 0, 0, 0, 1, 1, 1],
        rollout_ids=[10, 11, 11, 11, 20, 20, 21],
        divide_by_std=False,
    )
    assert result.tolist() == [-0.5, 0.5, 0.5, 0.5, -1, -1, 1]
    assert result.dtype == torch.float32


def test_grpo_golden() -> None:
    result = grpo_advantages([1.0, 0.0, 0.0, 1.0], group_ids="aaaa", epsilon=0.0)
    assert result.tolist() == pytest.approx([0.8660254, -0.8660254, -0.8660254, 0.8660254])
    assert rloo_advantages([1.0, 0.0, 0.0, 4.0], group_ids="aaaa").tolist() == pytest.approx(
        [-1 / 3, -5 / 3, -5 / 3, 11 / 3]
    )


def test_groups_are_found_by_id_wherever_their_rollouts_stand() -> None:
    result = dr_grpo_advantages([0, 10, 2, 30], group_ids=["p", "q", "p", "q"])
    assert result.tolist() == [-1, -10, 1, 10]


@pytest.mark.parametrize("reward", [0.1, 1e6 + 0.1, -3.3])
def test_a_single_rollout_or_equal_rewards_give_exactly_zero(reward: float) -> None:
    """slime #1655, #2204: NaN for groups of one; nor may the rounding of a mean be blown up by 1 / epsilon."""
    for function in (grpo_advantages, dr_grpo_advantages, rloo_advantages):
        rewards = torch.tensor([reward] * 7, dtype=torch.float64)
        assert function(rewards, group_ids=[0, 0, 0, 0, 0, 0, 1]).tolist() == [0] * 7
    assert grpo_advantages([reward] * 3, group_ids=[0, 0, 1], epsilon=0.0).tolist() == [0] * 3


def test_ids_may_be_a_tensor_or_any_hashable() -> None:
    rewards = torch.tensor([0.0, 1.0])
    assert grpo_advantages(rewards, group_ids=torch.tensor([5, 5]), divide_by_std=False).tolist() == [-0.5, 0.5]
    assert grpo_advantages(rewards, group_ids=[("a", 1), ("a", 1)], divide_by_std=False).tolist() == [-0.5, 0.5]


def test_integer_rewards_and_an_empty_batch() -> None:
    assert grpo_advantages(torch.tensor([0, 1]), group_ids=[0, 0], divide_by_std=False).dtype == torch.float32
    assert grpo_advantages(torch.zeros(0), group_ids=[]).tolist() == []


@pytest.mark.parametrize("function", [grpo_advantages, dr_grpo_advantages, rloo_advantages])
@pytest.mark.parametrize(
    ("rewards", "ids", "message"),
    [
        ([[1.0]], {"group_ids": [0]}, r"rewards has shape \(1, 1\)"),
        ([1.0, 2.0], {"group_ids": [0]}, "group_ids has 1 entries for 2 samples"),
        ([1.0, 2.0], {"group_ids": [0, None]}, r"group_ids is None at positions \[1\]"),
        ([1.0, 2.0], {"group_ids": [0, 0], "rollout_ids": [0]}, "rollout_ids has 1 entries for 2 samples"),
        ([1.0, 2.0], {"group_ids": [0, 0], "rollout_ids": [None, 1]}, r"rollout_ids is None at positions \[0\]"),
        ([1.0, float("nan")], {"group_ids": [0, 0]}, r"rewards is not finite at positions \[1\], nan at the first"),
        (
            [1.0, 2.0],
            {"group_ids": [0, 0], "rollout_ids": [5, 5]},
            "position 1 has reward 2.0 but another sample of its rollout has 1.0",
        ),
        (
            [1.0, 1.0],
            {"group_ids": [0, 1], "rollout_ids": [5, 5]},
            "position 1 has group id 1 but another sample of its rollout has 0",
        ),
    ],
)
def test_bad_input_is_named(
    function: Callable[..., torch.Tensor], rewards: Any, ids: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        function(rewards, **ids)
    with pytest.raises(ValueError, match=f"^{function.__name__}|^grpo_advantages"):
        function(rewards, **ids)


def test_a_negative_epsilon_is_named() -> None:
    with pytest.raises(ValueError, match="epsilon is -1"):
        grpo_advantages([1.0], group_ids=[0], epsilon=-1)
