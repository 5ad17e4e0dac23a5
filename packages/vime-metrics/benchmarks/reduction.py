"""`vime_metrics.torch.reduce` against `gather_object` and a Python loop on the source rank.

    OMP_NUM_THREADS=1 python packages/vime-metrics/benchmarks/reduction.py

Two gloo ranks on loopback, one per core. Both ways reduce the same (total, weight) pairs to means on rank 0; rounds of
the two alternate within one run, and each is timed from a barrier to the next one, so that the slower rank counts. The
best round of each is compared: what else the machine does can only slow a round down.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from vime_metrics import Count, Last, Max, Mean, Metric, Min, Rate, SimulatedWorld, Std, Sum
from vime_metrics.torch import reduce

SIZES = (200, 2_000, 10_000)
ROUNDS = 60
KINDS: dict[str, Metric] = {
    "Sum": Sum(1.0),
    "Count": Count(1),
    "Mean": Mean(1.0, 2.0),
    "Rate": Rate(1.0, 2.0),
    "Min": Min(1.0),
    "Max": Max(1.0),
    "Last": Last(1.0),
    "Std": Std.of([1.0, 2.0]),
}
Pairs = dict[str, tuple[float, float]]


def gather_and_loop(pairs: Pairs, rank: int, ranks: int) -> dict[str, float] | None:
    """What trainers do: pickle a dictionary on every rank, loop over it on the source."""
    gathered: list[Pairs] = [{} for _ in range(ranks)]
    dist.gather_object(pairs, gathered if rank == 0 else None, dst=0)
    if rank:
        return None
    return {name: sum(each[name][0] for each in gathered) / sum(each[name][1] for each in gathered) for name in pairs}


def seconds_of(call: Callable[[], object]) -> float:
    dist.barrier()
    started = time.perf_counter()
    call()
    dist.barrier()
    return time.perf_counter() - started


def compare(rank: int, ranks: int, store: str) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    if rank == 0:
        print(f"{'metrics':>8} {'gather ms':>10} {'reduce ms':>10} {'ratio':>6} {'of medians':>11}")
    for size in SIZES:
        pairs = {f"train/metric_{at}": (1.1 * at + rank, at + 1.0) for at in range(size)}
        step = {name: Mean(total, weight) for name, (total, weight) in pairs.items()}
        assert (reduce(step) or {}) == dict(sorted((gather_and_loop(pairs, rank, ranks) or {}).items()))
        theirs, ours = [], []
        for _ in range(ROUNDS):
            theirs.append(seconds_of(lambda: gather_and_loop(pairs, rank, ranks)))  # noqa: B023 - called at once
            ours.append(seconds_of(lambda: reduce(step)))  # noqa: B023
        if rank == 0:
            medians = statistics.median(theirs) / statistics.median(ours)
            best, mine = min(theirs), min(ours)
            print(f"{size:8d} {1e3 * best:10.2f} {1e3 * mine:10.2f} {best / mine:6.1f} {medians:11.1f}", flush=True)
    dist.destroy_process_group()


def bytes_per_metric() -> None:
    """Buffers of a steady step, without the 32 bytes that tell the schema, which do not grow."""
    print("\nbytes into a rank per metric, and collectives, of a steady step with 1000 metrics")
    print(f"{'kind':>8} " + " ".join(f"{ranks:>9} ranks" for ranks in (2, 16, 64)))
    for kind, metric in KINDS.items():
        cells = []
        for ranks in (2, 16, 64):
            world, step = SimulatedWorld(ranks), {f"{kind}/{at}": metric for at in range(1000)}
            world.all_reduce([step] * ranks)
            world.all_reduce([step] * ranks)
            total = sum(each.num_bytes for each in world.collectives) - 32
            cells.append(f"{total / 1000:9.1f} in {len(world.collectives)}  ")
        print(f"{kind:>8} " + " ".join(cells))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        mp.spawn(compare, (2, str(Path(directory, "store"))), nprocs=2)
    bytes_per_metric()
