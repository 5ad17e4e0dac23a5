"""Calibration: recovers what made the log, stays within what was measured, and says how well it fits."""

from __future__ import annotations

import math
import random
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from vime_schedule import Calibration, ScheduleError, calibrate
from vime_schedule._costs._least_squares import non_negative_fit

COEFFICIENT = st.sampled_from([0.0, 0.5, 1.0, 3.0])


def log_of(overhead: float, constant: float, linear: float, quadratic: float) -> list[tuple[list[int], float]]:
    """Sixty micro-batches of 1 to 6 samples with exactly the seconds that the coefficients give."""
    rng = random.Random(0)
    log = []
    for _ in range(60):
        lengths = [rng.randint(10, 4000) for _ in range(rng.randint(1, 6))]
        seconds = overhead + sum(constant + linear * s + quadratic * s * s for s in lengths)
        log.append((lengths, seconds))
    return log


@given(COEFFICIENT, COEFFICIENT, COEFFICIENT, COEFFICIENT)
def test_recovers_the_coefficients_of_a_noiseless_log(a: float, b: float, c: float, d: float) -> None:
    assume(b or c or d)
    scale = (1.0, 1.0, 1e-3, 1e-6)
    truth = [value * unit for value, unit in zip((a, b, c, d), scale, strict=True)]
    fit = calibrate(log_of(*truth))
    got = [fit.overhead, fit.polynomial.constant, fit.polynomial.linear, fit.polynomial.quadratic]
    assert got == pytest.approx(truth, rel=1e-6, abs=1e-9)
    assert fit.r_squared == pytest.approx(1.0)


def test_noise_lowers_r_squared_to_the_explained_share() -> None:
    rng = random.Random(1)
    noisy = [(lengths, seconds * rng.uniform(0.5, 1.5)) for lengths, seconds in log_of(1.0, 0.0, 1e-3, 1e-6)]
    fit = calibrate(noisy)
    fitted = [fit.overhead + sum(map(fit, lengths)) for lengths, _ in noisy]
    mean = sum(seconds for _, seconds in noisy) / len(noisy)
    residual = sum((y - f) ** 2 for (_, y), f in zip(noisy, fitted, strict=True))
    assert fit.r_squared == pytest.approx(1 - residual / sum((y - mean) ** 2 for _, y in noisy))
    assert 0.3 < fit.r_squared < 0.95


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9), st.floats(0.1, 9.0)), min_size=4, max_size=8))
def test_no_non_negative_coefficients_on_a_grid_do_better(rows: list[tuple[int, int, float]]) -> None:
    columns = [[1] * len(rows), [row[0] for row in rows], [row[1] for row in rows]]
    target = [row[2] for row in rows]

    def error(coefficients: list[float]) -> float:
        fitted = (sum(x * column[i] for x, column in zip(coefficients, columns, strict=True)) for i in range(len(rows)))
        return sum((f - y) ** 2 for f, y in zip(fitted, target, strict=True))

    best = non_negative_fit(columns, target)
    assert min(best) >= 0
    grid = (0.0, 0.1, 0.5, 1.0, 2.0)
    assert error(best) <= min(error(list(point)) for point in product(grid, repeat=3)) + 1e-9


def test_single_samples_leave_the_constant_to_the_overhead() -> None:
    fit = calibrate([([s], 2.0 + 0.01 * s) for s in (10, 20, 30, 40, 50)])
    assert fit.overhead == pytest.approx(2.0)
    assert fit.polynomial.constant == 0.0


@pytest.mark.parametrize("length", [9, 51, 2**53])
def test_refuses_to_extrapolate(length: int) -> None:
    fit = calibrate([([s], 2.0 + 0.01 * s) for s in (10, 20, 30, 40, 50)])
    assert fit(10) < fit(50)
    with pytest.raises(ScheduleError, match=rf"length {length} is outside the calibrated 10..50 tokens"):
        fit(length)
    assert fit.polynomial(length) > 0


def test_repr_of_a_calibration_says_what_was_measured() -> None:
    fit = calibrate(log_of(1.0, 0.0, 1e-3, 0.0))
    assert isinstance(fit, Calibration)
    assert (fit.num_observations, fit.shortest >= 10, fit.longest <= 4000) == (60, True, True)


@pytest.mark.parametrize(
    ("log", "text"),
    [
        ([([10], 1.0)] * 3, "3 observations cannot fix four coefficients: give at least 4"),
        ([([10], 1.0 + i) for i in range(5)], "hold samples of 10 tokens only"),
        ([([10 + i], 1.0) for i in range(5)], "took the same time"),
        ([([], 1.0)], "observation 0 has no samples"),
        ([([10], 1.0), ([0], 1.0)], "observation 1 has the length 0"),
        ([([10.5], 1.0)], "observation 0 has the length 10.5"),
        ([([10], 0.0)], "observation 0 took 0.0 seconds"),
        ([([10], math.nan)], "observation 0 took nan seconds"),
        ([([10 * i], 10.0 - i) for i in range(1, 6)], "does not grow with the tokens"),
    ],
)
def test_a_log_that_says_nothing_is_refused(log: list[tuple[list[float], float]], text: str) -> None:
    with pytest.raises(ScheduleError, match=text):
        calibrate(log)  # type: ignore[arg-type]
