"""What the ranks of the tests do, each in its own process."""

from __future__ import annotations

import os
import time

import numpy as np
import torch
import torch.distributed as dist

from vime_metrics import Count, Histogram, Last, Max, Mean, Min, Quantiles, Rate, Std, Sum, TextCounts
from vime_metrics.torch import all_reduce, reduce


def run_rank(scenario, rank, size, store, sender, args):
    """Join the default group through a file, run the scenario, send what came out."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    dist.barrier()  # a rank that leaves at once must not break the connecting of the others
    try:
        sender.send(SCENARIOS[scenario](rank, size, *args))
    except (RuntimeError, ValueError) as error:
        sender.send((type(error).__name__, str(error)))
    if scenario not in DEADLY:
        dist.barrier()
    dist.destroy_process_group()


def values_of(rank):
    """Different numbers, and different numbers of numbers, on each rank; none on every third."""
    return np.random.default_rng(rank).normal(size=0 if rank % 3 == 2 else 5 + 3 * rank)


def step_of(rank, many=1):
    """Every kind of metric; `many` repeats values so that quantiles leave the exact range."""
    values = values_of(rank)
    step = {
        "count": Count(rank),
        "histogram": Histogram.of(values, edges=[-1, 0, 1]),
        "last": Last(float(rank), step=rank % 2),
        "max": Max.of(values),
        "mean": Mean.of(values, weights=np.abs(values)),
        "min": Min.of(values),
        "quantiles": Quantiles.of(np.repeat(values, many), also=[0.9]),
        "rate": Rate(10 * rank, 2.0),
        "std": Std.of(values, unbiased=True),
        "sum": Sum.of(values),
        "texts": TextCounts.of(["all", f"rank {rank % 2}"]),
    }
    if rank % 4 == 1:
        step["only here"] = Sum(rank)
    return {} if rank % 4 == 3 else step


def every_kind(rank, size, many):
    return [all_reduce(step_of(rank, many)) for _ in range(3)]


def every_kind_to_one(rank, size, dst):
    return [reduce(step_of(rank), group_dst=dst) for _ in range(3)]


def subgroup(rank, size, members, dst):
    """A reduction within `members`, while the other ranks do one of their own."""
    others = [other for other in range(size) if other not in members]
    mine = dist.new_group(members)
    rest = dist.new_group(others)
    group = mine if rank in members else rest
    return all_reduce(step_of(rank), group), reduce(step_of(rank), group, group_dst=dst)


def outside(rank, size):
    return all_reduce({"a": Sum(1)}, dist.new_group([0]))


def replicas(rank, size, cp):
    """DP x CP, DP outermost: reward is known to all CP ranks of a replica, tokens are sharded."""
    dp_rank = rank // cp
    step = {"reward": Mean.of(values_of(dp_rank)), "samples": Count(dp_rank + 1), "tokens": Sum(rank)}
    return all_reduce(step, replicas={"reward": cp, "samples": cp})


def clash(rank, size):
    return all_reduce({"loss": Max(1) if rank == size - 1 else Mean(1, 1)})


def strict(rank, size):
    return all_reduce({} if rank == 1 else {"loss": Mean(1, 1)}, strict=True)


def fatal_nan(rank, size):
    return all_reduce({"loss": Mean(float("nan") if rank == 1 else 1.0, 1)}, nonfinite="error")


def different_calls(rank, size):
    return all_reduce({"a": Sum(1)}) if rank == 0 else reduce({"a": Sum(1)})


def recovers(rank, size):
    """An error that all ranks raise leaves the group usable."""
    try:
        clash(rank, size)
    except ValueError:
        return all_reduce({"a": Sum(1)})
    return None


def dies(rank, size, dead, steps_before):
    """The rank `dead` leaves without a word after some steps; the others go on."""
    for _ in range(steps_before):
        all_reduce({"train/loss": Mean(1, 1)})
    if rank == dead:
        os._exit(1)
    started = time.monotonic()
    try:
        all_reduce({"train/loss": Mean(1, 1), "train/kl": Max(1)}, timeout_seconds=3)
    except RuntimeError as error:
        return type(error).__name__, str(error), time.monotonic() - started
    return None


def never_comes(rank, size, late):
    """The rank `late` is alive but does something else."""
    all_reduce({"train/loss": Mean(1, 1)})
    if rank == late:
        time.sleep(7)
        return "did something else"
    started = time.monotonic()
    try:
        all_reduce({"train/loss": Mean(1, 1)}, timeout_seconds=1)
    except RuntimeError as first:
        seconds = time.monotonic() - started
        try:
            all_reduce({"train/loss": Mean(1, 1)})
        except RuntimeError as second:
            return type(first).__name__, str(first), seconds, str(second) == str(first)
    return None


def counts_beyond_float32(rank, size):
    return all_reduce({"tokens": Count(2**53 // size if rank else 2**53 - (size - 1) * (2**53 // size))})


def tensors(rank, size):
    """Metrics made of tensors, with gradients, in any dtype."""
    values = torch.tensor([1.0, 2.0, 3.0 + rank], dtype=torch.bfloat16, requires_grad=True)
    step = {
        "mean": Mean.of(values),
        "pair": Mean(values.sum(), torch.tensor(3)),
        "list": Max.of([values[0], values[2]]),
        "quantiles": Quantiles.of(values),
    }
    return all_reduce(step)


DEADLY = {"dies", "never_comes"}
SCENARIOS = {
    function.__name__: function
    for function in (
        clash,
        counts_beyond_float32,
        different_calls,
        dies,
        every_kind,
        every_kind_to_one,
        fatal_nan,
        never_comes,
        outside,
        recovers,
        replicas,
        strict,
        subgroup,
        tensors,
    )
}
