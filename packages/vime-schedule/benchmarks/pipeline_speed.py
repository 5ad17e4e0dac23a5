"""Time the makespan that a search calls against the timeline that people look at; ratios within this run count.

python packages/vime-schedule/benchmarks/pipeline_speed.py
"""

from __future__ import annotations

import random
from time import process_time

from vime_schedule import ParallelLayout, pipeline_makespan, simulate

SHAPES = [(4, 1, 16), (8, 1, 64), (8, 1, 512), (4, 2, 16), (8, 2, 64), (8, 4, 512)]


def seconds(call: object, repeats: int) -> float:
    """Return the best of three means."""
    best = float("inf")
    for _ in range(3):
        begin = process_time()
        for _ in range(repeats):
            call()  # type: ignore[operator]
        best = min(best, (process_time() - begin) / repeats)
    return best


def main() -> None:
    rng = random.Random(0)
    print(" pp vpp    M  makespan    per operation  timeline  ratio")
    for pp, vpp, count in SHAPES:
        costs = [rng.lognormvariate(0, 1) for _ in range(count)]
        layout = ParallelLayout(pp=pp, vpp=vpp)
        fast = seconds(lambda: pipeline_makespan(costs, pp=pp, vpp=vpp), max(3, 20000 // (pp * vpp * count)))  # noqa: B023
        slow = seconds(lambda: simulate(costs, layout=layout), max(1, 2000 // (pp * vpp * count)))  # noqa: B023
        operations = 2 * pp * vpp * count
        print(
            f"{pp:3d} {vpp:3d} {count:4d} {1e6 * fast:8.0f} us {1e9 * fast / operations:10.0f} ns"
            f" {1e3 * slow:10.1f} ms {slow / fast:6.0f}"
        )


if __name__ == "__main__":
    main()
