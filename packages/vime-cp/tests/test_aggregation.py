"""Sample weights: each aggregation is what its definition says, and nothing masked adds a token or divides by zero."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vime_cp import Aggregation, sample_weights

if TYPE_CHECKING:
    from types import ModuleType

AGGREGATIONS = [a.value for a in Aggregation]


def arguments(aggregation: str, samples: list[Any]) -> dict[str, Any]:
    return {
        "rollout_mean": {"rollout_ids": [s.rollout_id for s in samples]},
        "prompt_mean": {"prompt_ids": [s.prompt_id for s in samples]},
        "constant": {"constant": 37.5},
    }.get(aggregation, {})


@given(
    seed=st.integers(0, 10_000),
    count=st.integers(1, 12),
    aggregation=st.sampled_from(AGGREGATIONS),
    count_masked=st.booleans(),
)
def test_weights_give_the_objective_of_the_definition(
    oracle: ModuleType, seed: int, count: int, aggregation: str, count_masked: bool
) -> None:
    samples = oracle.random_samples(seed, count)
    losses = [s.mask.sum() * torch.tensor(1.5 + i, dtype=torch.float64) for i, s in enumerate(samples)]
    weights = sample_weights(
        aggregation,
        torch.stack([s.mask.sum() for s in samples]),
        count_masked=count_masked,
        **arguments(aggregation, samples),
    )
    expected = oracle.objective(aggregation, samples, losses, count_masked=count_masked, constant=37.5)
    assert weights.dtype == torch.float64
    assert torch.isfinite(weights).all()
    assert torch.allclose(weights @ torch.stack(losses), expected, rtol=1e-12, atol=0)
    assert all(w == 0 for w, s in zip(weights, samples, strict=True) if not s.mask.sum())


def test_worked_example_of_two_rollouts_one_with_siblings() -> None:
    """A = {3 tokens of loss 6, 1 token of loss 2}, B = {2 tokens of loss 1}."""
    losses = torch.tensor([6.0, 2.0, 1.0], dtype=torch.float64)
    by = {
        "rollout_mean": {"rollout_ids": ["A", "A", "B"]},
        "sample_mean": {},
        "token_mean": {},
        "prompt_mean": {"prompt_ids": [0, 0, 0]},
        "constant": {"constant": 3.0},
    }
    expected = {"rollout_mean": 1.25, "sample_mean": 4.5 / 3, "token_mean": 1.5, "prompt_mean": 1.5, "constant": 3.0}
    for name, ids in by.items():
        assert (sample_weights(name, [3, 1, 2], **ids) @ losses).item() == pytest.approx(expected[name], rel=1e-15)


def test_slime_1933_siblings_share_one_rollout_wherever_they_stand() -> None:
    weights = sample_weights("rollout_mean", [3, 2, 1], rollout_ids=["A", "B", "A"])
    assert weights.tolist() == [1 / 8, 1 / 4, 1 / 8]


def test_whether_masked_units_count_is_the_callers_choice() -> None:
    ids = {"rollout_ids": ["A", "B", "B"]}
    assert sample_weights("rollout_mean", [4, 0, 0], **ids).tolist() == [1 / 4, 0, 0]
    assert sample_weights("rollout_mean", [4, 0, 0], count_masked=True, **ids).tolist() == [1 / 8, 0, 0]
    assert sample_weights("token_mean", [4, 0, 0], count_masked=True).tolist() == [1 / 4, 0, 0]


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("count_masked", [False, True])
def test_C3_an_all_masked_step_has_weights_of_zero(aggregation: str, count_masked: bool) -> None:
    ids: dict[str, Any] = {"prompt_mean": {"prompt_ids": [1, 2]}, "constant": {"constant": 2.0}}.get(aggregation, {})
    assert sample_weights(aggregation, [0, 0], count_masked=count_masked, **ids).tolist() == [0, 0]


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_a_step_without_samples_has_no_weights(aggregation: str) -> None:
    ids: dict[str, Any] = {"prompt_mean": {"prompt_ids": []}, "constant": {"constant": 2.0}}.get(aggregation, {})
    assert sample_weights(aggregation, [], **ids).tolist() == []


def test_weights_do_not_depend_on_the_order_of_the_samples() -> None:
    sums, ids = torch.tensor([3, 1, 4, 1, 5, 9]), ["a", "b", "a", "c", "b", "a"]
    order = torch.randperm(6)
    weights = sample_weights("rollout_mean", sums, rollout_ids=ids)
    shuffled = sample_weights("rollout_mean", sums[order], rollout_ids=[ids[i] for i in order])
    assert torch.equal(weights[order], shuffled)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (("mean", [1]), "aggregation is 'mean': give one of ['rollout_mean', 'sample_mean'"),
        (("token_mean", [[1.0]]), "mask_sums has shape (1, 1): give one number per sample, [samples]"),
        (("token_mean", [1.0, -1.0]), "negative or not finite at positions [1]"),
        (("token_mean", [float("nan")]), "negative or not finite at positions [0]"),
        (("prompt_mean", [1.0]), "prompt_ids is None with aggregation 'prompt_mean'"),
        (("constant", [1.0]), "constant is None with aggregation 'constant'"),
    ],
)
def test_what_is_refused(call: tuple[Any, ...], text: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        sample_weights(*call)
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rollout_ids": ["a"]}, "rollout_ids has 1 entries for 2 samples: give one per sample"),
        ({"rollout_ids": ["a", None]}, "rollout_ids is None at positions [1]"),
        ({"rollout_ids": torch.tensor([1, 2])}, "hash by identity: pass rollout_ids.tolist()"),
        ({"constant": 3.0}, "constant is 3.0 with aggregation 'rollout_mean'"),
    ],
)
def test_ids_that_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        sample_weights("rollout_mean", [1.0, 2.0], **options)
    assert text in str(error.value)


@pytest.mark.parametrize("constant", [0.0, -1.0, float("nan"), float("inf")])
def test_a_constant_that_cannot_divide_is_refused(constant: float) -> None:
    with pytest.raises(ValueError, match="give the divisor of the step, finite and above 0"):
        sample_weights("constant", [1.0], constant=constant)
