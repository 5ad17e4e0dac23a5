"""Plan random settings and show how far from their lower bounds the plans are.

    python packages/vime-schedule/benchmarks/survey.py [--draws 600] [--seed 0] [--worst 10]

Each draw takes a family of lengths, 181 to 4,096 samples, a power of two of ranks that leaves each at least 24 samples,
one to four times the family's budget, and one time in four each: an interleaved pipeline, padding, four siblings that
stay in one step. Prints markdown.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean

from vime_schedule import ParallelLayout, PolynomialCost, Schedule, TokenBudget, build_dp_schedule

COST = PolynomialCost(0.0, 24576.0, 1.0)
CAP = 32768
Draw = Callable[[random.Random], int]


def log_normal(mu: float, sigma: float) -> Draw:
    return lambda draw: min(CAP, int(draw.lognormvariate(mu, sigma)) + 1)


def two_kinds(short: float, low: int, high: int) -> Draw:
    return lambda draw: draw.randint(200, 2000) if draw.random() < short else draw.randint(low, high)


FAMILIES: dict[str, tuple[Draw, int]] = {  # how one length is drawn, and the least token budget
    "log-normal": (log_normal(7.6, 1.0), CAP),
    "heavy tail": (log_normal(7.0, 1.6), CAP),
    "chains of thought": (lambda draw: 300 + min(CAP, int(draw.lognormvariate(8.3, 1.0))), 36864),
    "spike at the budget": (lambda draw: CAP if draw.random() < 0.15 else log_normal(7.6, 1.0)(draw), CAP),
    "spike below it": (lambda draw: CAP if draw.random() < 0.15 else log_normal(7.6, 1.0)(draw), 40960),
    "two kinds, 15% long": (two_kinds(0.85, 19660, CAP), CAP),
    "two kinds, half long": (two_kinds(0.5, 19660, CAP), CAP),
    "two kinds, up to 40,960": (two_kinds(0.85, 24576, 40960), 40960),
    "uniform to a quarter": (lambda draw: draw.randint(200, CAP // 4), CAP),
    "uniform to the budget": (lambda draw: draw.randint(200, CAP), CAP),
}


@dataclass(frozen=True)
class Setting:
    """One call but for its objective."""

    family: str
    samples: int
    dp: int
    budget: int
    interleaved: bool
    padded: bool
    siblings: bool
    seed: int

    @staticmethod
    def drawn(draw: random.Random) -> Setting:
        family = draw.choice(list(FAMILIES))
        samples = int(2 ** draw.uniform(7.5, 12)) // 4 * 4
        most = (samples // 24).bit_length() - 1
        return Setting(
            family=family,
            samples=samples,
            dp=2 ** draw.randint(1, min(6, most)),
            budget=int(FAMILIES[family][1] * draw.choice([1, 1, 1.25, 1.5, 2, 4])),
            interleaved=draw.random() < 0.25,
            padded=draw.random() < 0.25,
            siblings=draw.random() < 0.25,
            seed=draw.randrange(10**6),
        )

    def plan(self, objective: str) -> Schedule:
        draw = random.Random(self.seed)
        lengths = [FAMILIES[self.family][0](draw) for _ in range(self.samples)]
        aligned = {"sequence_align": 128, "pack_align": 512} if self.padded else {}
        return build_dp_schedule(
            lengths,
            layout=ParallelLayout(dp=self.dp, pp=4, vpp=2) if self.interleaved else ParallelLayout(dp=self.dp),
            batching=TokenBudget(max_tokens_per_gpu=self.budget, **aligned),
            global_batch_size=self.samples // 4 if self.siblings else self.samples,
            rollout_ids=[k // 4 for k in range(self.samples)] if self.siblings else None,
            cost=COST,
            objective=objective,
        )


@dataclass
class Gaps:
    """How far above their bounds the plans of one family are, and how long they took."""

    lockstep: list[float] = field(default_factory=list)
    step: list[float] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worst", type=int, default=10, help="plans listed one by one (default 10)")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    families = {name: Gaps() for name in FAMILIES}
    far: list[tuple[float, str]] = []
    for _ in range(options.draws):
        setting = Setting.drawn(draw)
        gaps = families[setting.family]
        for objective, kept, limit in (("lockstep", gaps.lockstep, 0.005), ("step", gaps.step, 0.0005)):
            start = time.process_time()
            plan = setting.plan(objective)
            gaps.milliseconds.append(1e3 * (time.process_time() - start))
            total = plan.report().total
            gap = total.lockstep_gap if objective == "lockstep" else total.imbalance_gap
            kept.append(gap)
            if gap > limit:
                why = f"{objective}, M={total.micro_batches} (at least {total.micro_batches_bound})"
                far.append((gap / limit, f"{gap:.2%}: {why}, {total.fill_fraction:.1%} full, {setting}"))
    head = ("lengths", "draws", "lockstep, mean", "largest", "above 0.5%", "step, mean", "largest", "above 0.05%", "ms")
    print(f"| {' | '.join(head)} |")
    print(f"|{'---|' * len(head)}")
    for name, gaps in families.items():
        if not gaps.step:
            continue
        cells = [name, str(len(gaps.lockstep))]
        for kept, limit in ((gaps.lockstep, 0.005), (gaps.step, 0.0005)):
            cells += [f"{fmean(kept):.3%}", f"{max(kept):.2%}", str(sum(gap > limit for gap in kept))]
        print(f"| {' | '.join(cells)} | {fmean(gaps.milliseconds):.1f} |")
    print("\nFarthest from the bound:\n")
    for _, line in sorted(far, reverse=True)[: options.worst]:
        print(f"- {line}")


if __name__ == "__main__":
    main()
