"""Log-probs and entropy: the same numbers and gradients as a plain softmax, for any sharding, chunk and dtype."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile

from vime_cp import SimulatedGroup, log_probs_and_entropy, simulate

if TYPE_CHECKING:
    from collections.abc import Callable


def plain(
    logits: torch.Tensor, targets: torch.Tensor, temperature: float = 1.0, keep: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """By definition, with log_softmax over the whole vocabulary."""
    z = logits / temperature
    log_p = torch.log_softmax(z, -1)
    entropy = -torch.special.xlogy(log_p.exp(), log_p.exp()).sum(-1)
    if keep is not None:
        log_p = torch.log_softmax(z.masked_fill(~keep, -torch.inf), -1)
    return log_p.gather(1, targets[:, None])[:, 0], entropy


def random_case(seed: int, tokens: int, vocab: int, *, dtype: torch.dtype = torch.float64) -> tuple[Any, ...]:
    gen = torch.Generator().manual_seed(seed)
    logits = (3 * torch.randn(tokens, vocab, generator=gen, dtype=torch.float64)).to(dtype)
    targets = torch.randint(0, vocab, (tokens,), generator=gen)
    rates = torch.randn(2, tokens, generator=gen, dtype=torch.float64)
    return logits, targets, rates


@given(
    seed=st.integers(0, 10_000),
    tokens=st.integers(1, 70),
    shard=st.integers(1, 9),
    tp=st.sampled_from([1, 2, 3, 4]),
    chunk_size=st.sampled_from([1, 2, 7, 1024]),
    temperature=st.sampled_from([1.0, 0.6, 2.5]),
    filtered=st.booleans(),
    entropy=st.sampled_from([True, "no_grad", False]),
)
def test_C2_equal_to_plain_softmax_for_every_sharding(
    seed: int, tokens: int, shard: int, tp: int, chunk_size: int, temperature: float, filtered: bool, entropy: Any
) -> None:
    logits, targets, rates = random_case(seed, tokens, shard * tp)
    keep = torch.rand(logits.shape, generator=torch.Generator().manual_seed(seed)) < 0.5 if filtered else None
    with_targets = None if keep is None else keep.scatter(1, targets[:, None], True)
    whole = logits.clone().requires_grad_()
    log_p, exact_entropy = plain(whole, targets, temperature, with_targets)
    entropy_rate = rates[1] if entropy is True else torch.zeros(tokens)
    (log_p @ rates[0] + exact_entropy @ entropy_rate.double()).backward()
    parts = [part.clone().requires_grad_() for part in logits.chunk(tp, 1)]

    def one_rank(group: SimulatedGroup) -> torch.Tensor:
        scored = log_probs_and_entropy(
            parts[group.rank],
            targets,
            group=group,
            temperature=temperature,
            chunk_size=chunk_size,
            entropy=entropy,
            keep_mask=None if keep is None else keep.chunk(tp, 1)[group.rank],
        )
        assert torch.allclose(scored.log_probs, log_p, rtol=1e-12, atol=1e-12)
        loss = scored.log_probs @ rates[0]
        if entropy is False:
            assert scored.entropy is None
        else:
            assert scored.entropy is not None
            assert torch.allclose(scored.entropy, exact_entropy, rtol=1e-12, atol=1e-12)
            assert scored.entropy.requires_grad == (entropy is True)
            loss = loss + (scored.entropy @ rates[1] if entropy is True else 0.0)
        return loss

    # Megatron's loss is the same on every TP rank and each differentiates its own copy: one backward per rank.
    for loss, part in zip(simulate(tp, one_rank), parts, strict=True):
        part.grad = torch.autograd.grad(loss, part)[0]
    assert whole.grad is not None
    assert torch.allclose(torch.cat([part.grad for part in parts], 1), whole.grad, rtol=1e-12, atol=1e-12)


def test_autograd_of_the_written_backward() -> None:
    logits, targets, _ = random_case(0, 6, 5)
    mask = torch.tensor([1, 1, 0, 1, 1, 1])

    def both(z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scored = log_probs_and_entropy(z, targets, entropy=True, temperature=0.7, mask=mask, chunk_size=2)
        assert scored.entropy is not None
        return scored.log_probs, scored.entropy

    assert torch.autograd.gradcheck(both, logits.requires_grad_())


def test_golden_values() -> None:
    scored = log_probs_and_entropy(torch.tensor([[0.0, math.log(3.0)]]), torch.tensor([1]), entropy=True)
    assert scored.log_probs.item() == pytest.approx(math.log(0.75), rel=1e-6)
    assert scored.entropy is not None
    assert scored.entropy.item() == pytest.approx(-(0.25 * math.log(0.25) + 0.75 * math.log(0.75)), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_narrow_logits_are_summed_in_fp32(dtype: torch.dtype) -> None:
    logits, targets, rates = random_case(3, 40, 300, dtype=dtype)
    z = logits.requires_grad_()
    scored = log_probs_and_entropy(z, targets, entropy=True)
    assert scored.entropy is not None
    assert scored.log_probs.dtype == scored.entropy.dtype == torch.float32
    exact = logits.detach().double().requires_grad_()
    log_p, entropy = plain(exact, targets)
    assert torch.allclose(scored.log_probs.double(), log_p, rtol=1e-6, atol=1e-5)
    assert torch.allclose(scored.entropy.double(), entropy, rtol=1e-6, atol=1e-5)
    (scored.log_probs @ rates[0].float() + scored.entropy @ rates[1].float()).backward()
    (log_p @ rates[0] + entropy @ rates[1]).backward()
    assert z.grad is not None
    assert exact.grad is not None
    assert z.grad.dtype == dtype
    step = torch.finfo(dtype).eps
    assert torch.allclose(z.grad.double(), exact.grad, rtol=2 * step, atol=2e-6), "rounded once, when it is stored"


@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("entropy", [True, "no_grad", False])
def test_masked_rows_are_zero_whatever_their_logits_are(poison: float, entropy: Any) -> None:
    """slime 5.3-12: 0 * logits.sum() turned the -inf of padding into NaN."""
    logits, targets, rates = random_case(1, 8, 6)
    mask = torch.tensor([1, 0, 1, 1, 0, 1, 0, 1])
    clean = logits.clone().requires_grad_()
    log_p, exact_entropy = plain(clean, targets)
    (log_p @ (rates[0] * mask) + exact_entropy @ (rates[1] * mask * (entropy is True))).backward()
    dirty = torch.where(mask[:, None] != 0, logits, poison).requires_grad_()
    scored = log_probs_and_entropy(dirty, targets, entropy=entropy, mask=mask)
    loss = scored.log_probs @ rates[0]
    if entropy is True:
        assert scored.entropy is not None
        assert scored.entropy[mask == 0].tolist() == [0, 0, 0]
        loss = loss + scored.entropy @ rates[1]
    loss.backward()
    assert scored.log_probs[mask == 0].tolist() == [0, 0, 0]
    assert torch.allclose(scored.log_probs, log_p * mask)
    assert clean.grad is not None
    assert torch.allclose(torch.as_tensor(dirty.grad), clean.grad)


def test_rows_that_no_loss_uses_have_gradient_zero_also_without_a_mask() -> None:
    logits, targets, _ = random_case(2, 3, 4)
    logits[1] = torch.nan
    z = logits.requires_grad_()
    scored = log_probs_and_entropy(z, targets, entropy=True)
    assert scored.entropy is not None
    weights = torch.tensor([1.0, 0.0, 2.0]).double()
    (torch.where(weights != 0, scored.log_probs + scored.entropy, 0) @ weights).backward()
    assert z.grad is not None
    assert z.grad[1].tolist() == [0, 0, 0, 0]
    assert torch.isfinite(z.grad).all()


def test_padded_vocabulary_of_minus_infinity_is_exact_on_any_shard() -> None:
    """A vocabulary padded with -inf, one TP shard of which is nothing but padding."""
    logits, targets, rates = random_case(4, 5, 8)
    targets %= 4
    logits[:, 4:] = -torch.inf
    exact = logits[:, :4].clone().requires_grad_()
    log_p, entropy = plain(exact, targets)
    (log_p @ rates[0] + entropy @ rates[1]).backward()
    parts = [part.clone().requires_grad_() for part in logits.chunk(2, 1)]

    def one_rank(group: SimulatedGroup) -> torch.Tensor:
        scored = log_probs_and_entropy(parts[group.rank], targets, group=group, entropy=True)
        assert scored.entropy is not None
        assert torch.allclose(scored.log_probs, log_p)
        assert torch.allclose(scored.entropy, entropy)
        return scored.log_probs @ rates[0] + scored.entropy @ rates[1]

    for loss, part in zip(simulate(2, one_rank), parts, strict=True):
        part.grad = torch.autograd.grad(loss, part)[0]
    assert exact.grad is not None
    assert torch.allclose(torch.as_tensor(parts[0].grad), exact.grad)
    assert torch.equal(torch.as_tensor(parts[1].grad), torch.zeros(5, 4, dtype=torch.float64))


def test_large_logits_do_not_overflow() -> None:
    scored = log_probs_and_entropy(torch.tensor([[3e38, -3e38, 3e38]]), torch.tensor([0]), entropy=True)
    assert scored.entropy is not None
    assert scored.log_probs.item() == pytest.approx(-math.log(2))
    assert scored.entropy.item() == pytest.approx(math.log(2))


def test_slime_214_logits_keep_their_values() -> None:
    """slime #214: an in-place division by the temperature broke backward."""
    logits, targets, _ = random_case(5, 4, 4)
    z = logits.clone().requires_grad_()
    log_probs_and_entropy(z, targets, temperature=0.5, entropy=True).log_probs.sum().backward()
    assert torch.equal(z.detach(), logits)


def test_slime_2297_a_temperature_of_zero_is_an_error() -> None:
    for temperature in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=r"temperature is .* greater than 0"):
            log_probs_and_entropy(torch.zeros(1, 2), torch.tensor([0]), temperature=temperature)


def test_slime_2158_entropy_alone_may_carry_the_gradient() -> None:
    """slime #2158: gradients that were not materialised arrived as None."""
    logits, targets, rates = random_case(6, 4, 5)
    z = logits.clone().requires_grad_()
    entropy = log_probs_and_entropy(z, targets, entropy=True).entropy
    assert entropy is not None
    (entropy @ rates[1]).backward()
    exact = logits.clone().requires_grad_()
    (plain(exact, targets)[1] @ rates[1]).backward()
    assert torch.allclose(torch.as_tensor(z.grad), torch.as_tensor(exact.grad))


def test_an_id_that_no_rank_owns_scores_nan() -> None:
    for target in (-1, 4, 1_000_000):
        scored = log_probs_and_entropy(torch.zeros(2, 4), torch.tensor([target, 1]))
        assert scored.log_probs.isnan().tolist() == [True, False]


def test_shards_that_overlap_score_nan() -> None:
    def one_rank(group: SimulatedGroup) -> torch.Tensor:
        return log_probs_and_entropy(torch.zeros(1, 4), torch.tensor([1]), group=group, vocab_start=0).log_probs

    assert all(scored.isnan().all() for scored in simulate(2, one_rank))


def test_uneven_shards_need_their_start() -> None:
    logits, targets, _ = random_case(8, 6, 7)

    def one_rank(group: SimulatedGroup) -> torch.Tensor:
        start, end = (0, 5) if group.rank == 0 else (5, 7)
        return log_probs_and_entropy(logits[:, start:end], targets, group=group, vocab_start=start).log_probs

    for scored in simulate(2, one_rank):
        assert torch.allclose(scored, plain(logits, targets)[0])


def test_no_rows_at_all() -> None:
    z = torch.zeros(0, 4, requires_grad=True)
    scored = log_probs_and_entropy(z, torch.zeros(0, dtype=torch.int64), entropy=True)
    assert scored.entropy is not None
    (scored.log_probs.sum() + scored.entropy.sum()).backward()
    assert scored.log_probs.shape == (0,)
    assert torch.as_tensor(z.grad).shape == (0, 4)


def peak_bytes(run: Callable[[], None]) -> int:
    """Most bytes that were allocated at once while running, from the profiler's allocation events."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    held = peak = 0
    assert profiler.profiler is not None
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize(("tokens", "dtype"), [(2048, torch.float32), (2048, torch.bfloat16), (64, torch.float32)])
def test_at_most_a_quarter_more_than_the_gradient_is_alive(tokens: int, dtype: torch.dtype, filtered: bool) -> None:
    logits = torch.randn(tokens, 4000).to(dtype).requires_grad_()
    targets = torch.randint(0, 4000, (tokens,))
    keep = torch.rand(tokens, 4000) < 0.5 if filtered else None

    def run() -> None:
        scored = log_probs_and_entropy(logits, targets, entropy=True, temperature=0.7, keep_mask=keep)
        assert scored.entropy is not None
        (scored.log_probs.sum() + scored.entropy.sum()).backward()

    keep_copy = 0 if keep is None else keep.nbytes
    assert peak_bytes(run) <= 1.25 * logits.nbytes + keep_copy
    assert peak_bytes(run) >= logits.nbytes, "the profiler saw the gradient"


WRONG: list[tuple[str, dict[str, Any]]] = [
    (r"logits has shape \(1, 3, 4\)", {"logits": torch.zeros(1, 3, 4)}),
    (r"logits has shape \(3, 0\)", {"logits": torch.zeros(3, 0)}),
    (r"logits .* torch.int64", {"logits": torch.zeros(3, 4, dtype=torch.int64)}),
    (r"targets has shape \(2,\)", {"targets": torch.zeros(2, dtype=torch.int64)}),
    (r"targets .* torch.float32", {"targets": torch.zeros(3)}),
    (r"chunk_size is 0", {"chunk_size": 0}),
    (r"keep_mask has shape \(3, 5\)", {"keep_mask": torch.ones(3, 5, dtype=torch.bool)}),
    (r"keep_mask .* torch.float32", {"keep_mask": torch.ones(3, 4)}),
    (r"mask has shape \(4,\)", {"mask": torch.ones(4)}),
    (r"targets is on meta but logits", {"targets": torch.zeros(3, dtype=torch.int64, device="meta")}),
    (r"entropy is 'yes'", {"entropy": "yes"}),
    (r"vocab_start is -1", {"vocab_start": -1}),
]


@pytest.mark.parametrize(("message", "change"), WRONG, ids=[message for message, _ in WRONG])
def test_bad_input_is_named_before_any_collective(message: str, change: dict[str, Any]) -> None:
    good: dict[str, Any] = {"logits": torch.zeros(3, 4), "targets": torch.zeros(3, dtype=torch.int64)} | change

    def one_rank(group: SimulatedGroup) -> None:
        if group.rank == 0:
            log_probs_and_entropy(good.pop("logits"), good.pop("targets"), group=group, **good)

    with pytest.raises(ValueError, match=message):
        simulate(2, one_rank)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="asserts that a CUDA device is not waited for")
def test_no_device_synchronisation() -> None:
    logits, targets, _ = (x.cuda() for x in random_case(9, 64, 500, dtype=torch.float32))
    z, mask = logits.requires_grad_(), torch.ones(64, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        scored = log_probs_and_entropy(z, targets, entropy=True, mask=mask)
        assert scored.entropy is not None
        (scored.log_probs.sum() + scored.entropy.sum()).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
