"""Importance corrections: golden values, sequence levels over cut sequences, and what a correction never changes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch

from vime_cp import ContextParallel, ImportanceWeights, SimulatedGroup, icepop, mis, simulate, tis

if TYPE_CHECKING:
    from collections.abc import Callable

RATIOS = (0.25, 1.0, 1.5, 4.0)
INDEX: dict[str, Any] = {"sample_index": torch.tensor([0, 0, 1, 1]), "num_samples": 2}


def pair(*ratios: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Train and rollout log-probs with these ratios."""
    rollout = torch.full((len(ratios),), -3.0, dtype=torch.float64)
    return rollout + torch.tensor(ratios, dtype=torch.float64).log(), rollout


def test_tis_truncates() -> None:
    result = tis(*pair(*RATIOS), low=0.5, high=2.0)
    assert result.weights.tolist() == pytest.approx([0.5, 1.0, 1.5, 2.0])
    assert result.ratio.tolist() == pytest.approx(RATIOS)
    assert result.bounded.tolist() == [True, False, False, True]


def test_icepop_rejects() -> None:
    result = icepop(*pair(*RATIOS), low=0.5, high=2.0)
    assert result.weights.tolist() == pytest.approx([0, 1.0, 1.5, 0])
    assert result.bounded.tolist() == [True, False, False, True]


@pytest.mark.parametrize(
    ("level", "mode", "expected"),
    [
        ("token", "mask", [0, 1.0, 1.5, 0]),
        ("token", "truncate", [0.5, 1.0, 1.5, 2.0]),
        ("sequence", "mask", [0, 0, 0, 0]),
        ("sequence", "truncate", [0.5, 0.5, 2.0, 2.0]),
        ("geometric", "mask", [0.5, 0.5, 0, 0]),
        ("geometric", "truncate", [0.5, 0.5, 2.0, 2.0]),
    ],
)
def test_mis_levels(level: Any, mode: Any, expected: list[float]) -> None:
    result = mis(*pair(*RATIOS), level=level, mode=mode, low=0.5 - 1e-9, high=2.0, **INDEX)
    assert result.weights.tolist() == pytest.approx(expected)


def test_mis_leaves_masked_tokens_out_of_the_sequence() -> None:
    mask = torch.tensor([0, 1, 1, 1])
    result = mis(*pair(*RATIOS), level="sequence", low=0.5, high=10, mask=mask, **INDEX)
    assert result.weights.tolist() == pytest.approx([0, 1.0, 6.0, 6.0])
    assert not result.bounded.any()
    rejected = mis(*pair(*RATIOS), level="sequence", low=0.2, high=2.0, mask=torch.tensor([1, 1, 0, 1]), **INDEX)
    assert rejected.bounded.tolist() == [False, False, False, True], "a masked token is not counted as rejected"


def test_veto_rejects_the_whole_sequence() -> None:
    result = mis(*pair(*RATIOS), level="token", mode="truncate", veto=0.3, high=9.0, **INDEX)
    assert result.weights.tolist() == pytest.approx([0, 0, 1.5, 4.0])
    assert result.bounded.tolist() == [True, True, False, False]
    masked = mis(*pair(*RATIOS), level="token", veto=0.3, high=9.0, mask=torch.tensor([0, 1, 1, 1]), **INDEX)
    assert masked.weights.tolist() == pytest.approx([0, 1.0, 1.5, 4.0]), "a masked token vetoes nothing"


@pytest.mark.parametrize("level", ["sequence", "geometric"])
@pytest.mark.parametrize("cp", [2, 3, 4])
def test_weights_do_not_depend_on_how_a_sequence_is_cut(level: Any, cp: int) -> None:
    """slime 1.9-8: corrections whose statistics were those of a micro-batch or a rank changed with the split."""
    gen = torch.Generator().manual_seed(cp)
    train, rollout = torch.randn(2, 30, generator=gen, dtype=torch.float64) / 5
    index, mask = torch.sort(torch.randint(0, 4, (30,), generator=gen))[0], torch.rand(30, generator=gen) < 0.7
    options: dict[str, Any] = {"level": level, "low": 0.8, "high": 1.3, "veto": 0.7, "num_samples": 5}
    whole = mis(train, rollout, mask=mask, sample_index=index, **options)
    owner = torch.randint(0, cp - 1, (30,), generator=gen)

    def one_rank(group: SimulatedGroup) -> tuple[torch.Tensor, ImportanceWeights]:
        mine = (owner == group.rank).nonzero()[:, 0]
        rank = ContextParallel(rank=group.rank, size=cp, group=group)
        return mine, mis(train[mine], rollout[mine], mask=mask[mine], sample_index=index[mine], cp=rank, **options)

    parts = simulate(cp, one_rank)
    assert len(parts[-1][0]) == 0, "the last rank holds nothing and still takes part"
    for mine, part in parts:
        assert torch.allclose(part.weights, whole.weights[mine], rtol=1e-12)
        assert torch.equal(part.bounded, whole.bounded[mine])


CORRECTIONS: dict[str, Callable[..., ImportanceWeights]] = {
    "tis": tis,
    "icepop": icepop,
    "mis token": mis,
    "mis sequence": lambda *a, **k: mis(*a, level="sequence", veto=0.1, **INDEX, **k),
    "mis geometric": lambda *a, **k: mis(*a, level="geometric", mode="truncate", **INDEX, **k),
}


@pytest.mark.parametrize("name", CORRECTIONS)
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_masked_positions_are_zero_and_reach_nothing(name: str, poison: float) -> None:
    train, rollout = pair(1.0, 1.1, 0.9, 1.0)
    clean = CORRECTIONS[name](train, rollout, mask=torch.tensor([1, 0, 1, 1]))
    train[1] = poison
    dirty = CORRECTIONS[name](train, rollout, mask=torch.tensor([1, 0, 1, 1]))
    assert dirty.weights.tolist() == clean.weights.tolist()
    assert dirty.weights[1] == 0
    assert not dirty.bounded[1]


@pytest.mark.parametrize("name", CORRECTIONS)
def test_weights_carry_no_graph(name: str) -> None:
    train, rollout = (x.requires_grad_() for x in pair(1.0, 1.1, 0.9, 1.0))
    result = CORRECTIONS[name](train, rollout)
    assert not any(x.requires_grad for x in (result.weights, result.ratio, result.bounded))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": "word"}, "level is 'word': give one of"),
        ({"mode": "drop"}, "mode is 'drop': give one of"),
        ({"low": 2.0, "high": 1.0}, "high is 1.0: give a number of at least 2.0"),
        ({"low": -1.0}, "low is -1.0"),
        ({"veto": -1.0, **INDEX}, "veto is -1.0"),
        ({"level": "sequence"}, "sample_index or num_samples is None but level='sequence'"),
        ({"veto": 0.1}, "sample_index or num_samples is None but .*veto=0.1"),
        (
            {"level": "sequence", "num_samples": 2, "sample_index": torch.zeros(3, dtype=torch.int64)},
            "sample_index has",
        ),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mis(*pair(*RATIOS), **options)


@pytest.mark.parametrize("correction", [tis, icepop, mis])
def test_bad_tensors_are_named(correction: Callable[..., ImportanceWeights]) -> None:
    train, rollout = pair(*RATIOS)
    with pytest.raises(ValueError, match=r"rollout_log_probs has shape \(3,\) but train_log_probs has \(4,\)"):
        correction(train, rollout[:3])
    with pytest.raises(ValueError, match=r"rollout_log_probs is torch.float32 but train_log_probs is torch.float64"):
        correction(train, rollout.float())
