"""Measure the planner: quality beside its lower bounds, planning time beside arrival first-fit, memory, pipeline order.

    python packages/vime-schedule/benchmarks/planner.py [LENGTHS ...] [--quick]

LENGTHS are text files with one token count per line, planned as further families. Times are CPU time of this process,
the least of several runs; compare them with arrival first-fit, which is timed in the same run. Prints markdown.
"""

from __future__ import annotations

import argparse
import random
import time
import tracemalloc
from collections.abc import Callable, Sequence
from math import log
from pathlib import Path

from vime_schedule import FlopsCost, ParallelLayout, Schedule, TokenBudget, build_dp_schedule, pipeline_makespan

MODEL = {  # a dense model of 4 billion parameters
    "hidden_size": 2560,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 9728,
    "vocab_size": 151936,
}
COST = FlopsCost.from_hf_config(MODEL)
Draw = Callable[[random.Random], int]
FAMILIES: dict[str, tuple[Draw, int]] = {  # how one length is drawn, and the token budget
    "reasoning": (lambda draw: 300 + min(32768, int(draw.lognormvariate(8.3, 1.0))), 36864),
    "heavy tail": (lambda draw: min(32768, int(draw.lognormvariate(7.0, 1.6)) + 1), 32768),
    "truncation spike": (
        lambda draw: 32768 if draw.random() < 0.15 else min(32768, int(draw.lognormvariate(7.6, 1.0)) + 1),
        36864,
    ),
    "two kinds": (
        lambda draw: draw.randint(200, 2000) if draw.random() < 0.85 else draw.randint(19660, 32768),
        36864,
    ),
    "uniform": (lambda draw: draw.randint(200, 8192), 36864),
}


def lengths_of(family: Draw, count: int, seed: int = 0) -> list[int]:
    draw = random.Random(seed)
    return [family(draw) for _ in range(count)]


def plan(lengths: Sequence[int], budget: int, objective: str, layout: ParallelLayout) -> Schedule:
    return build_dp_schedule(
        lengths,
        layout=layout,
        batching=TokenBudget(max_tokens_per_gpu=budget),
        global_batch_size=len(lengths),
        cost=COST,
        objective=objective,
    )


def layout_for(count: int) -> ParallelLayout:
    return ParallelLayout(dp=16 if count < 4096 else 64 if count < 100_000 else 256, pp=4, vpp=2)


def first_fit(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Arrival-order first-fit, as trainers of this family pack today."""
    held: list[int] = []
    bins: list[list[int]] = []
    for position, length in enumerate(lengths):
        for b, tokens in enumerate(held):
            if tokens + length <= budget:
                held[b] += length
                bins[b].append(position)
                break
        else:
            held.append(length)
            bins.append([position])
    return bins


def seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """The least CPU time of several runs."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(f"\n## {title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def quality(families: dict[str, tuple[Draw, int]], counts: Sequence[int]) -> None:
    rows = []
    for name, (family, budget) in families.items():
        for count in counts:
            lengths = lengths_of(family, count)
            step, rows_plan, balanced = (
                plan(lengths, budget, objective, layout_for(count)).report().total
                for objective in ("step", "lockstep", "balanced")
            )
            rows.append(
                (
                    name,
                    f"{count:,}",
                    str(layout_for(count).dp),
                    f"{rows_plan.micro_batches} ({rows_plan.micro_batches_bound})",
                    f"{rows_plan.fill_fraction:.1%}",
                    f"{step.imbalance:.4f}",
                    f"{step.imbalance_gap:.3%}",
                    f"{rows_plan.lockstep:.4f}",
                    f"{rows_plan.lockstep_gap:.3%}",
                    f"{balanced.imbalance:.4f} / {balanced.lockstep:.4f}",
                )
            )
    head = ("lengths", "samples", "dp", "M (fewest)", "fill", "imbalance, step", "gap", "lockstep, lockstep", "gap")
    table("Quality", (*head, "balanced: imbalance / lockstep"), rows)


def plan_seconds(lengths: Sequence[int], budget: int, objective: str) -> float:
    count = len(lengths)
    repeats = 5 if count < 100_000 else 2 if count < 10**6 else 1
    return seconds(lambda: plan(lengths, budget, objective, layout_for(count)), repeats)


def fit_seconds(lengths: Sequence[int], budget: int) -> float:
    return seconds(lambda: first_fit(lengths, budget), 2)


def speed(families: dict[str, tuple[Draw, int]], counts: Sequence[int]) -> None:
    rows = []
    for name, (family, budget) in families.items():
        for count in counts:
            lengths = lengths_of(family, count)
            own = [plan_seconds(lengths, budget, objective) for objective in ("step", "lockstep", "balanced")]
            row = [name, f"{count:,}", *(f"{value * 1e3:,.1f}" for value in own)]
            if count <= 16384:
                fit = fit_seconds(lengths, budget)
                row += [f"{fit * 1e3:,.1f}", f"{fit / max(own):.1f} to {fit / min(own):.1f}"]
            rows.append([*row, "", ""][:7])
    head = ("lengths", "samples", "step ms", "lockstep ms", "balanced ms", "arrival first-fit ms", "times faster")
    table("Planning time", head, rows)


def growth(families: dict[str, tuple[Draw, int]]) -> None:
    small, large = 16384, 131072
    limit = large * log(large) / (small * log(small))
    rows = []
    for name, (family, budget) in families.items():
        before, after = (plan_seconds(lengths_of(family, count), budget, "lockstep") for count in (small, large))
        rows.append((name, f"{after / before:.2f}", f"{after / before / limit:.2f}"))
    table("Growth from 16,384 to 131,072 samples", ("lengths", "times the time", "over n log n"), rows)


def memory(count: int) -> None:
    family, budget = FAMILIES["reasoning"]
    lengths = lengths_of(family, count)
    tracemalloc.start()
    kept = plan(lengths, budget, "lockstep", layout_for(count))
    current, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    rows = [(f"{count:,}", f"{peak / count:.0f}", f"{current / count:.0f}", f"{kept.steps[0].num_samples:,}")]
    table("Memory beyond the input", ("samples", "peak bytes per sample", "of the plan", "planned"), rows)


def pipeline(families: dict[str, tuple[Draw, int]]) -> None:
    """Eight stages, two ranks, 256 samples: mean of ten seeds over the time of perfectly busy stages."""
    layout = ParallelLayout(dp=2, pp=8)
    rows = []
    for name in ("heavy tail", "truncation spike"):
        family, _ = families[name]
        produced = same = ordered = ideal = 0.0
        for seed in range(10):
            lengths = lengths_of(family, 256, seed)
            schedule = plan(lengths, 32768, "pipeline", layout)
            step = schedule.steps[0]
            bins = [sum(COST(lengths[p]) for p in held) for held in first_fit(lengths, 32768)]
            arrived = [
                [cost for _, cost in sorted(zip(map(min, rank), costs, strict=True))]
                for rank, costs in zip(step.micro_batches, step.costs, strict=True)
            ]
            produced += max(pipeline_makespan(bins[rank::2], pp=8) for rank in range(2))
            same += max(pipeline_makespan(costs, pp=8) for costs in arrived)
            ordered += schedule.report().total.makespan
            ideal += 3 * sum(map(sum, step.costs)) / 2 / 8
        gains = [f"{1 - ordered / before:.1%}" for before in (produced, same)]
        rows.append((name, *(f"{value / ideal:.3f}" for value in (produced, same, ordered)), *gains))
    head = (
        "lengths",
        "arrival first-fit",
        "our bins in arrival order",
        "planned order",
        "shorter",
        "shorter, same bins",
    )
    table("Simulated 1F1B makespan over the ideal, pp=8, dp=2, 256 samples", head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lengths", nargs="*", type=Path, help="text files with one token count per line")
    parser.add_argument("--budget", type=int, default=131072, help="tokens per GPU for LENGTHS (default 131072)")
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    options = parser.parse_args()
    families = dict(FAMILIES)
    for path in options.lengths:
        pool = [int(line) for line in path.read_text().split()]
        families[path.stem] = (lambda draw, pool=pool: draw.choice(pool), options.budget)
    print("# Planner, measured\n\nMade by `python packages/vime-schedule/benchmarks/planner.py`; layout pp=4, vpp=2.")
    quality(families, (512, 4096) if options.quick else (512, 4096, 16384, 131072))
    speed(families, (512, 4096) if options.quick else (512, 4096, 16384, 131072))
    if not options.quick:
        speed({"reasoning": FAMILIES["reasoning"]}, (10**6,))
        growth(families)
        memory(131072)
    pipeline(families)


if __name__ == "__main__":
    main()
