"""Log-probs and entropy with backward against log_softmax and gather: python benchmarks/bench_log_probs.py

Each line is one run on this machine, the best of three with both sides in turn; compare the figures of a line.
Times are CPU times of one thread, so that other work on the machine does not count.
Memory is what a fresh process's peak resident size grows by during one forward and backward, logits not included.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch

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
    """Growth of the peak resident size in units of the logits' size, measured in this process."""
    logits, targets = make_inputs(dtype)
    small = torch.zeros(64, VOCAB, dtype=DTYPES[dtype], requires_grad=True)
    FUNCTIONS[name](small, targets[:64], entropy=entropy).backward()
    before = peak_resident_bytes()
    FUNCTIONS[name](logits, targets, entropy=entropy).backward()
    return (peak_resident_bytes() - before) / logits.nbytes


def peak_resident_bytes() -> int:
    """Largest resident size of this process so far (Linux)."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1]) * 1024


def measured_apart(dtype: str, name: str, *, entropy: bool) -> float:
    command = [sys.executable, __file__, "--memory-of", name, "--dtype", dtype, *(["--entropy"] if entropy else [])]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--memory-of", choices=list(FUNCTIONS))
    parser.add_argument("--dtype", choices=list(DTYPES), default="fp32")
    parser.add_argument("--entropy", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.memory_of:
        print(peak_growth(options.dtype, options.memory_of, entropy=options.entropy))
        return
    print(f"| {TOKENS} x {VOCAB}, forward and backward | log_softmax + gather | vime-cp | better |\n|---|---|---|---|")
    for dtype, entropy in (("fp32", True), ("fp32", False), ("bf16", True)):
        name = f"{dtype} log-prob" + (" and entropy" if entropy else "")
        time_of = seconds(dtype, entropy=entropy)
        ratio = time_of["usual"] / time_of["ours"]
        print(f"| {name}, seconds | {time_of['usual']:.2f} | {time_of['ours']:.2f} | {ratio:.1f}x |", flush=True)
        peak = {side: measured_apart(dtype, side, entropy=entropy) for side in FUNCTIONS}
        ratio = peak["usual"] / peak["ours"]
        print(f"| {name}, peak / logits | {peak['usual']:.2f} | {peak['ours']:.2f} | {ratio:.1f}x |", flush=True)


if __name__ == "__main__":
    main()
