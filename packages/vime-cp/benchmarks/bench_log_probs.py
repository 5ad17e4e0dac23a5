"""Log-probs and entropy with backward against log_softmax and gather: python benchmarks/bench_log_probs.py

Each line is one run on this machine, the best of three with both sides in turn; compare the figures of a line.
Times are CPU times of one thread, so that other work on the machine does not count.
Memory is the largest number of bytes that torch's profiler saw allocated at once, logits not included.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch
from torch.profiler import ProfilerActivity, profile

from vime_cp import log_probs_and_entropy

if TYPE_CHECKING:
    from collections.abc import Callable

TOKENS, VOCAB, RUNS = 4096, 32_000, 3
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def make_inputs(dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    gen = torch.Generator().manual_seed(0)
    logits = torch.empty(TOKENS, VOCAB, dtype=DTYPES[dtype])
    for rows in logits.split(64):
        rows.copy_(torch.randn(len(rows), VOCAB, generator=gen))
    return logits.requires_grad_(), torch.randint(0, VOCAB, (TOKENS,), generator=gen)


def ours(logits: torch.Tensor, targets: torch.Tensor, *, entropy: bool) -> torch.Tensor:
    scored = log_probs_and_entropy(logits, targets, entropy=entropy)
    return scored.log_probs.sum() if scored.entropy is None else scored.log_probs.sum() + scored.entropy.sum()


def usual(logits: torch.Tensor, targets: torch.Tensor, *, entropy: bool) -> torch.Tensor:
    log_p = torch.log_softmax(logits.float(), -1)
    score = log_p.gather(1, targets[:, None]).sum()
    return score - (log_p.exp() * log_p).sum() if entropy else score


FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {"usual": usual, "ours": ours}


def seconds(dtype: str, *, entropy: bool) -> dict[str, float]:
    logits, targets = make_inputs(dtype)
    times: dict[str, list[float]] = {name: [] for name in FUNCTIONS}
    gradients = {}
    for _ in range(RUNS + 1):
        for name, function in FUNCTIONS.items():
            start = time.process_time()
            function(logits, targets, entropy=entropy).backward()
            times[name].append(time.process_time() - start)
            gradients[name], logits.grad = logits.grad, None
    torch.testing.assert_close(gradients["ours"], gradients["usual"], rtol=1e-2 if dtype == "bf16" else 1e-4, atol=1e-5)
    return {name: min(runs[1:]) for name, runs in times.items()}


def peak_growth(dtype: str, name: str, *, entropy: bool) -> float:
    """Most bytes allocated at once during one forward and backward, in units of the logits' size."""
    logits, targets = make_inputs(dtype)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        FUNCTIONS[name](logits, targets, entropy=entropy).backward()
    assert profiler.profiler is not None
    held = peak = 0
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak / logits.nbytes


def main() -> None:
    torch.set_num_threads(1)
    print(f"| {TOKENS} x {VOCAB}, forward and backward | log_softmax + gather | vime-cp | better |\n|---|---|---|---|")
    for dtype, entropy in (("fp32", True), ("fp32", False), ("bf16", True)):
        name = f"{dtype} log-prob" + (" and entropy" if entropy else "")
        time_of = seconds(dtype, entropy=entropy)
        ratio = time_of["usual"] / time_of["ours"]
        print(f"| {name}, seconds | {time_of['usual']:.2f} | {time_of['ours']:.2f} | {ratio:.1f}x |", flush=True)
        peak = {side: peak_growth(dtype, side, entropy=entropy) for side in FUNCTIONS}
        ratio = peak["usual"] / peak["ours"]
        print(f"| {name}, peak / logits | {peak['usual']:.2f} | {peak['ours']:.2f} | {ratio:.1f}x |", flush=True)


if __name__ == "__main__":
    main()
