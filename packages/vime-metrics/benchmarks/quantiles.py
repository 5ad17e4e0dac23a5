"""Ten million values into `Quantiles`: seconds, memory, error.

python packages/vime-metrics/benchmarks/quantiles.py
"""

from __future__ import annotations

import time
import tracemalloc

import numpy as np

from vime_metrics import Quantiles

SIZE = 10_000_000
SHARES = (0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999)


def data() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    lognormal = draw.lognormal(7.6, 1.6, SIZE)
    return {
        "lognormal": lognormal,
        "spike at the cap": np.minimum(lognormal, 4096.0),
        "lognormal, both signs": lognormal * draw.choice([-1.0, 1.0], SIZE),
        "integers, half of them 0": draw.poisson(0.7, SIZE).astype(float),
    }


def measure(values: np.ndarray) -> tuple[float, float, int, float]:
    """Seconds, peak MiB beyond the input, buckets, largest relative error."""
    started = time.perf_counter()
    found = Quantiles.of(values)
    seconds = time.perf_counter() - started
    tracemalloc.start()
    Quantiles.of(values)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    exact = np.quantile(values, SHARES)
    errors = [abs(found.quantile(q) - value) / max(abs(value), 1e-300) for q, value in zip(SHARES, exact, strict=True)]
    assert found.sketch is not None
    return seconds, peak / 2**20, found.sketch.buckets.size, max(errors)


if __name__ == "__main__":
    print(f"{'data':>25} {'seconds':>8} {'peak MiB':>9} {'buckets':>8} {'largest error':>14}")
    for name, values in data().items():
        seconds, peak, buckets, error = measure(values)
        print(f"{name:>25} {seconds:8.2f} {peak:9.1f} {buckets:8d} {100 * error:13.3f}%")
