"""Losses: golden values by hand, gradients by formula, and the faults that users of other trainers reported."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any

import pytest
import torch

import vime_cp
from vime_cp import (
    cispo_loss,
    distillation_advantages,
    distillation_loss,
    entropy_bonus,
    gspo_loss,
    kl,
    off_policy_sequence_mask,
    policy_loss,
    sft_loss,
    value_loss,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def at(*ratios: float) -> torch.Tensor:
    """New log-probs whose ratios to 0 are these."""
    return torch.tensor(ratios, dtype=torch.float64).log().requires_grad_()


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def zeros(count: int) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.float64)


def gradient(loss: torch.Tensor, x: torch.Tensor) -> list[float]:
    return torch.autograd.grad(loss.sum(), x)[0].tolist()


def test_ppo_golden() -> None:
    new = at(1.5, 1.5, 0.5, 0.5, 1.0, 1.1)
    advantages = numbers(2, -2, 2, -2, 2, -2)
    result = policy_loss(new, zeros(6), advantages)
    assert result.loss.tolist() == pytest.approx([-2.4, 3.0, -1.0, 1.6, -2.0, 2.2])
    assert result.clipped.tolist() == [True, False, False, True, False, False]
    assert result.ratio.tolist() == pytest.approx([1.5, 1.5, 0.5, 0.5, 1.0, 1.1])
    assert result.approx_kl.tolist() == pytest.approx([-math.log(r) for r in (1.5, 1.5, 0.5, 0.5, 1.0, 1.1)])
    assert gradient(result.loss, new) == pytest.approx([0, 3.0, -1.0, 0, -2.0, 2.2])


def test_dapo_clip_higher_golden() -> None:
    result = policy_loss(at(1.25, 1.4, 0.7), zeros(3), numbers(1, 1, -1), clip_low=0.2, clip_high=0.28)
    assert result.loss.tolist() == pytest.approx([-1.25, -1.28, 0.8])
    assert result.clipped.tolist() == [False, True, True]


def test_slime_2247_dual_clip_takes_effect() -> None:
    """slime #2247: the dual clip was parsed and never forwarded."""
    new = at(5.0, 5.0, 2.0)
    result = policy_loss(new, zeros(3), numbers(-1, 1, -1), dual_clip=3.0)
    assert result.loss.tolist() == pytest.approx([3.0, -1.2, 2.0])
    assert result.clipped.tolist() == [True, True, False]
    assert gradient(result.loss, new) == pytest.approx([0, 0, 2.0])


def test_cispo_golden_clipped_tokens_still_learn() -> None:
    new = at(3.0, 0.5, 1.0)
    result = cispo_loss(new, zeros(3), numbers(2, 2, -1), clip_high=0.5)
    assert result.loss.tolist() == pytest.approx([-1.5 * 2 * math.log(3), -0.5 * 2 * math.log(0.5), 0])
    assert gradient(result.loss, new) == pytest.approx([-3.0, -1.0, 1.0]), "the weight times -A, and nothing through it"
    assert result.clipped.tolist() == [True, False, False]
    assert cispo_loss(at(0.1), zeros(1), numbers(1), clip_low=0.2).clipped.tolist() == [True]


def test_gspo_golden() -> None:
    new = torch.tensor([0.3, 0.1, 9.0, 0.5], dtype=torch.float64, requires_grad=True)
    index, mask = torch.tensor([0, 0, 0, 1]), torch.tensor([1, 1, 0, 1])
    result = gspo_loss(
        new, zeros(4), numbers(2, 2, 2, -1), sample_index=index, num_samples=2, clip_low=0.3, clip_high=0.3, mask=mask
    )
    first, second = math.exp(0.2), math.exp(0.5)
    assert result.loss.tolist() == pytest.approx([-2 * first, -2 * first, 0, second])
    assert gradient(result.loss, new) == pytest.approx([-2 * first, -2 * first, 0, second])
    clipped = gspo_loss(new, zeros(4), numbers(2, 2, 2, -1), sample_index=index, num_samples=2, mask=mask)
    assert clipped.clipped.tolist() == [True, True, False, False]


def test_slime_695_gspo_takes_flat_tensors_like_every_other_loss() -> None:
    """slime #695: the GSPO branch kept old log-probs as a list."""
    with pytest.raises(ValueError, match=r"old_log_probs has shape \(3,\) but log_probs has \(2,\)"):
        gspo_loss(zeros(2), zeros(3), zeros(2), sample_index=torch.tensor([0, 0]), num_samples=1)


def test_kl_golden() -> None:
    new, ref = numbers(-1.0, -2.0, -3.0), numbers(-1.5, -2.0, -1.0)
    d = [0.5, 0.0, -2.0]
    assert kl(new, ref, "k1").tolist() == pytest.approx(d)
    assert kl(new, ref, "k2").tolist() == pytest.approx([x * x / 2 for x in d])
    assert kl(new, ref, "k3").tolist() == pytest.approx([math.exp(-x) - 1 + x for x in d])
    assert kl(numbers(-9.0), numbers(-1.0), "low_variance").tolist() == [10.0]
    assert kl(numbers(-9.0), numbers(-1.0), "k3").item() > 2900


def test_k3_keeps_its_digits_near_zero() -> None:
    tiny = torch.tensor([1e-4], dtype=torch.float32)
    assert kl(tiny, torch.zeros(1), "k3").item() == pytest.approx(5e-9, rel=0.01)


def test_unbiased_kl_has_the_gradient_of_the_divergence() -> None:
    """Over all outcomes of a categorical policy the weighted estimate has the value and gradient of KL(p || q)."""
    gen = torch.Generator().manual_seed(0)
    theta = torch.randn(5, generator=gen, dtype=torch.float64, requires_grad=True)
    old, ref = (torch.log_softmax(torch.randn(5, generator=gen, dtype=torch.float64), 0) for _ in range(2))
    new = torch.log_softmax(theta, 0)
    exact = (new.exp() * (new - ref)).sum()
    expected = (old.exp() * kl(new, ref, "k3", importance_weight=torch.exp(new - old))).sum()
    assert expected.item() == pytest.approx(exact.item())
    assert torch.allclose(*(torch.autograd.grad(x, theta, retain_graph=True)[0] for x in (expected, exact)))


def test_slime_2114_kl_does_not_change_its_arguments() -> None:
    """slime #2114: ``k *= coef`` and ``k[-1] += reward`` wrote into the column that was logged."""
    new, ref, weight = numbers(1.0), numbers(0.5), numbers(2.0)
    for estimator in ("k1", "k2", "k3", "low_variance"):
        result = kl(new, ref, estimator, importance_weight=weight)  # type: ignore[arg-type]
        result.mul_(100)
    assert (new.item(), ref.item(), weight.item()) == (1.0, 0.5, 2.0)


def test_slime_1370_kl_is_zero_at_tool_tokens() -> None:
    """slime #1370: the KL of tool tokens went into the reward."""
    assert kl(numbers(1, 1), numbers(0, -50), "k1", mask=torch.tensor([1, 0])).tolist() == [1.0, 0.0]


def test_entropy_value_sft_golden() -> None:
    assert entropy_bonus(numbers(2, 3), 0.5, mask=torch.tensor([1, 0])).tolist() == [-1.0, 0.0]
    assert sft_loss(numbers(-2, -3), mask=torch.tensor([0, 1])).tolist() == [0.0, 3.0]
    values = numbers(1.0, 1.0, 3.0, 0.0).requires_grad_()
    result = value_loss(values, numbers(0, 0, 0, 5), old_values=numbers(1.1, 2.0, 2.0, 1.0), clip=0.2)
    assert result.loss.tolist() == pytest.approx([1.0, 3.24, 9.0, 25.0])
    assert result.clipped.tolist() == [False, True, False, False], "only where the clip set the loss"
    assert gradient(result.loss, values) == pytest.approx([2.0, 0, 6.0, -10.0])


def test_distillation_golden() -> None:
    new = numbers(-1.0, -2.0).requires_grad_()
    teacher = numbers(-3.0, -1.5)
    assert distillation_advantages(new, teacher, coefficient=0.5).tolist() == [-1.0, 0.25]
    loss = distillation_loss(new, teacher)
    assert loss.tolist() == [2.0, -0.5]
    assert gradient(loss, new) == pytest.approx([2.0, -0.5]), "the KL's score-function gradient"
    off_policy = distillation_loss(new, teacher, old_log_probs=numbers(-1.5, -2.0))
    assert off_policy.tolist() == pytest.approx([2.0 * math.exp(0.5), -0.5])


def test_on_policy_distillation_descends_the_reverse_kl() -> None:
    """Over all outcomes of a categorical student its gradient is that of KL(student || teacher)."""
    gen = torch.Generator().manual_seed(1)
    theta = torch.randn(6, generator=gen, dtype=torch.float64, requires_grad=True)
    teacher = torch.log_softmax(torch.randn(6, generator=gen, dtype=torch.float64), 0)
    new = torch.log_softmax(theta, 0)
    expected = torch.autograd.grad(
        (new.exp().detach() * distillation_loss(new, teacher)).sum(), theta, retain_graph=True
    )
    exact = torch.autograd.grad((new.exp() * (new - teacher)).sum(), theta)
    assert torch.allclose(expected[0], exact[0])


def test_C18_teacher_scores_that_were_not_cut_are_named() -> None:
    """slime #1135: teacher log-probs of the whole response against a CP rank's part of the student's."""
    with pytest.raises(ValueError, match=r"teacher_log_probs has shape \(3,\) but log_probs has \(2,\).*under CP"):
        distillation_loss(zeros(2), zeros(3))


def test_a_ratio_beyond_reason_stays_finite() -> None:
    new = torch.tensor([-1.0, 90.0, -1.0, 200.0], requires_grad=True)
    old = torch.tensor([-200.0, 0.0, -0.5, 0.0])
    for loss in (policy_loss(new, old, torch.tensor([0.0, 1.0, 1.0, -1.0])), cispo_loss(new, old, torch.ones(4))):
        assert torch.isfinite(loss.loss).all()
        assert torch.isfinite(torch.tensor(gradient(loss.loss, new))).all()


def test_miles_1127_off_policy_masking_is_decided_once_per_sequence() -> None:
    """miles #1127: the sign of each token's advantage was combined with the divergence of the sequence."""
    new, old = numbers(-3.0, -1.0, -3.0, -3.0, -9.0), numbers(-1.0, -1.0, -1.0, -3.0, -1.0)
    index, mask = torch.tensor([0, 0, 1, 2, 2]), torch.tensor([1, 1, 1, 1, 0])
    options: dict[str, Any] = {"sample_index": index, "num_samples": 3, "mask": mask}
    failed = off_policy_sequence_mask(new, old, numbers(-2, 1, 1, -1, -1), delta=0.9, **options)
    assert failed.tolist() == [0, 0, 1, 1, 0], "moved 1 nat and failed; succeeded; not moved, its masked token apart"
    assert off_policy_sequence_mask(new, old, numbers(-2, 1, 1, -1, -1), delta=1.1, **options).tolist() == [
        1,
        1,
        1,
        1,
        0,
    ]
    with pytest.raises(ValueError, match="delta is -1"):
        off_policy_sequence_mask(new, old, new, delta=-1, **options)


INDEX: dict[str, Any] = {"sample_index": torch.tensor([0, 0, 1]), "num_samples": 2}
CALLS: dict[str, Callable[..., torch.Tensor]] = {
    "policy_loss": lambda a, b, c, **k: policy_loss(a, b, c, dual_clip=2.0, **k).loss,
    "cispo_loss": lambda a, b, c, **k: cispo_loss(a, b, c, **k).loss,
    "gspo_loss": lambda a, b, c, **k: gspo_loss(a, b, c, **INDEX, **k).loss,
    "off_policy_sequence_mask": lambda a, b, c, **k: (
        off_policy_sequence_mask(a, b, c, **INDEX, **k) * policy_loss(a, b, c, **k).loss
    ),
    "kl k1": lambda a, b, c, **k: kl(a, b, "k1", importance_weight=c, **k),
    "kl k2": lambda a, b, c, **k: kl(a, b, "k2", importance_weight=c, **k),
    "kl k3": lambda a, b, c, **k: kl(a, b, "k3", importance_weight=c, **k),
    "kl low_variance": lambda a, b, c, **k: kl(a, b, "low_variance", importance_weight=c, **k),
    "entropy_bonus": lambda a, _b, _c, **k: entropy_bonus(a, 0.1, **k),
    "value_loss": lambda a, b, c, **k: value_loss(a, b, old_values=c, **k).loss,
    "sft_loss": lambda a, _b, _c, **k: sft_loss(a, **k),
    "distillation_loss": lambda a, b, c, **k: distillation_loss(a, b, old_log_probs=c, **k),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_C3_masked_tokens_give_zero_and_pass_no_gradient(name: str, poison: float, dtype: torch.dtype) -> None:
    mask = torch.tensor([1, 0, 1]).to(dtype)
    columns = [numbers(-1.0, poison, -2.0).requires_grad_(), numbers(-1.1, poison, -2.1), numbers(-0.9, poison, -2.2)]
    loss = CALLS[name](*columns, mask=mask)
    assert loss[1].item() == 0
    assert torch.isfinite(loss).all()
    grad = gradient(loss, columns[0])
    assert grad[1] == 0
    assert all(map(math.isfinite, grad))
    assert any(grad)


@pytest.mark.parametrize("name", CALLS)
def test_C3_all_masked_gives_zero_and_gradient_zero(name: str) -> None:
    columns = [numbers(torch.nan, 1, 2).requires_grad_(), numbers(3, 4, 5), numbers(6, 7, 8)]
    loss = CALLS[name](*columns, mask=torch.zeros(3))
    assert loss.tolist() == [0, 0, 0]
    assert gradient(loss, columns[0]) == [0, 0, 0]


@pytest.mark.parametrize("name", CALLS)
def test_non_finite_at_unmasked_positions_is_not_hidden(name: str) -> None:
    columns = [numbers(-1.0, torch.nan, -2.0), numbers(-1.1, -1.0, -2.1), numbers(0.5, 0.5, -0.5)]
    assert CALLS[name](*columns)[1].isnan()


def test_slime_82d3f94_an_empty_sequence_has_no_mean() -> None:
    """slime 82d3f94: 0 / 0 for an empty mask. GSPO here divides a fully masked sequence by nothing."""
    mask = torch.tensor([0, 0, 1])
    loss = gspo_loss(zeros(3), zeros(3), torch.ones(3).double(), mask=mask, **INDEX).loss
    assert loss.tolist() == [0, 0, -1]


@pytest.mark.parametrize("name", CALLS)
def test_bad_tensors_are_named(name: str) -> None:
    good = [zeros(3), zeros(3), zeros(3)]
    first = next(iter(inspect.signature(getattr(vime_cp, name.split()[0])).parameters))
    with pytest.raises(ValueError, match=rf"{first} has shape \(3, 1\) .*\[local\]"):
        CALLS[name](good[0][:, None], *good[1:])
    with pytest.raises(ValueError, match=rf"{first} .* torch.int64"):
        CALLS[name](good[0].long(), *good[1:])
    with pytest.raises(ValueError, match=r"mask has shape \(2,\)"):
        CALLS[name](*good, mask=torch.ones(2))
    with pytest.raises(ValueError, match=r"mask is on meta"):
        CALLS[name](*good, mask=torch.ones(3, device="meta"))
    if name not in {"entropy_bonus", "sft_loss"}:
        with pytest.raises(ValueError, match=rf"is torch.float32 but {first} is torch.float64: convert"):
            CALLS[name](good[0], good[1].float(), good[2])
        with pytest.raises(ValueError, match=r"is on meta but .* on cpu"):
            CALLS[name](good[0], good[1].to("meta"), good[2])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: policy_loss(x, x, x, clip_low=-0.1), "clip_low is -0.1"),
        (lambda x: policy_loss(x, x, x, clip_high=-0.1), "clip_high is -0.1"),
        (lambda x: policy_loss(x, x, x, clip_low=math.nan), "clip_low is nan"),
        (lambda x: policy_loss(x, x, x, dual_clip=1.0), "dual_clip is 1.0: give a number above 1"),
        (lambda x: cispo_loss(x, x, x, clip_high=-1), "clip_high is -1"),
        (lambda x: value_loss(x, x, old_values=x, clip=-1), "clip is -1"),
        (lambda x: kl(x, x, "k4"), r"estimator is 'k4': give one of \('k1', 'k2', 'k3', 'low_variance'\)"),
        (
            lambda x: gspo_loss(x, x, x, sample_index=torch.tensor([0]), num_samples=1),
            r"sample_index has shape \(1,\)",
        ),
        (lambda x: gspo_loss(x, x, x, sample_index=zeros(3), num_samples=1), "sample_index is torch.float64"),
    ],
)
def test_bad_options_are_named(call: Callable[[torch.Tensor], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(zeros(3))


def test_only_the_loss_carries_a_graph() -> None:
    new = at(1.5, 0.5, 1.0)
    for result in (
        policy_loss(new, zeros(3), zeros(3)),
        cispo_loss(new, zeros(3), zeros(3)),
        gspo_loss(new, zeros(3), zeros(3), **INDEX),
    ):
        assert result.loss.requires_grad
        assert not any(x.requires_grad for x in (result.ratio, result.approx_kl, result.clipped))
    old, advantages = (zeros(3).requires_grad_() for _ in range(2))
    policy_loss(new, old, advantages).loss.sum().backward()
    assert old.grad is None
    assert advantages.grad is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="asserts that a CUDA device is not waited for")
@pytest.mark.parametrize("name", CALLS)
def test_no_device_synchronisation(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(INDEX, "sample_index", INDEX["sample_index"].cuda())
    columns = [torch.tensor([-1.0, -2.0, -1.5], device="cuda", requires_grad=True) for _ in range(3)]
    mask = torch.ones(3, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        CALLS[name](*columns, mask=mask).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
