"""Whole micro-batches against straightforward per-sample loops: python benchmarks/bench_aggregation.py

Each line is one run on this machine; compare the two times of a line, not lines of different runs.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from vime_cp import (
    ContextParallel,
    gather_responses,
    pack_micro_batch,
    pack_response,
    sample_weights,
    weighted_sum,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from vime_cp import PackedMicroBatch

RUNS = 15


def ragged_samples(count: int) -> tuple[list[torch.Tensor], list[int]]:
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(8, 64, (count,), generator=generator).tolist()
    responses = torch.randint(1, 256, (count,), generator=generator).tolist()
    return [torch.arange(p + r) % 1000 for p, r in zip(prompts, responses, strict=True)], responses


def median_ms(function: Callable[[], object]) -> float:
    function()
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        function()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


def loop_loss(
    values: torch.Tensor, masks: list[torch.Tensor], weights: list[float], lengths: list[int], prompts: list[int]
) -> torch.Tensor:
    """What trainers do: one slice, product, sum and weight per sample."""
    total, start = values.new_zeros(()), 0
    for mask, weight, length, prompt in zip(masks, weights, lengths, prompts, strict=True):
        response = values[start + prompt - 1 : start + length - 1]
        total = total + (response * mask).sum() * weight
        start += length
    return total


def bench_aggregation(count: int) -> tuple[float, float]:
    """Loss and backward of per-token values."""
    tokens, responses = ragged_samples(count)
    batch = pack_micro_batch(tokens, responses)
    weights = sample_weights("sample_mean", [float(r) for r in responses])
    values = torch.randn(batch.local_length, requires_grad=True)
    masks, listed = [torch.ones(r) for r in responses], weights.tolist()
    lengths = [len(t) for t in tokens]
    prompts = [t - r for t, r in zip(lengths, responses, strict=True)]
    ours = weighted_sum(values, batch.mask, weights, batch.sample_index)
    torch.testing.assert_close(ours, loop_loss(values, masks, listed, lengths, prompts))
    return (
        median_ms(lambda: loop_loss(values, masks, listed, lengths, prompts).backward()),
        median_ms(lambda: weighted_sum(values, batch.mask, weights, batch.sample_index).backward()),
    )


def loop_gather(batch: PackedMicroBatch, pieces: list[torch.Tensor]) -> list[torch.Tensor]:
    """What trainers do: pad each sample's part with zeros to the whole response and all-reduce it."""
    gathered = []
    for piece, total, response in zip(pieces, batch.total_lengths, batch.response_lengths, strict=True):
        whole, first, used = torch.zeros(response), total - response - 1, 0
        for part in batch.cp.logit_ranges(total, response):
            whole[part.start - first : part.stop - first] = piece[used : used + len(part)]
            used += len(part)
        dist.all_reduce(whole, group=batch.cp.group)
        gathered.append(whole)
    return gathered


def gather_rank(rank: int, rendezvous: str, count: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    cp = ContextParallel(rank=rank, size=2, group=dist.group.WORLD)
    tokens, responses = ragged_samples(count)
    batch = pack_micro_batch(tokens, responses, cp=cp)
    columns = [torch.randn(r) for r in responses]
    local = pack_response(columns, batch)
    pieces = [cp.slice_response(c, len(t), len(c)) for t, c in zip(tokens, columns, strict=True)]
    for ours, loop in zip(gather_responses(local, batch, gradient="none"), loop_gather(batch, pieces), strict=True):
        torch.testing.assert_close(ours, loop)
    loop_ms = median_ms(lambda: loop_gather(batch, pieces))
    ours_ms = median_ms(lambda: gather_responses(local, batch, gradient="none"))
    if rank == 0:
        print(row(f"gather of {count} responses, 2 gloo processes", loop_ms, ours_ms), flush=True)
    dist.destroy_process_group()


def row(name: str, loop: float, ours: float) -> str:
    return f"| {name} | {loop:.2f} | {ours:.2f} | {loop / ours:.0f}x |"


def main() -> None:
    torch.set_num_threads(1)
    print("| one micro-batch | per-sample loop, ms | vime-cp, ms | faster |\n|---|---|---|---|")
    for count in (64, 1024, 4096):
        print(row(f"loss and backward, {count} samples", *bench_aggregation(count)), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(gather_rank, (f"{folder}/rendezvous", 128), nprocs=2)


if __name__ == "__main__":
    main()
