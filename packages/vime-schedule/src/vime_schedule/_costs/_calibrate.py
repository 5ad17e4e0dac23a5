"""A cost in measured seconds: fit a polynomial to a log of micro-batches and the time each took.

Laws
- `seconds ~ overhead + sum over samples (constant + linear * length + quadratic * length**2)` by least squares, with no
  coefficient below 0, since a negative one makes some micro-batch cheaper than nothing.
- Terms the log cannot tell apart are not guessed: with one sample in every micro-batch the constant is all `overhead`.
- A length outside the measured ones is refused, not extrapolated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vime_schedule._costs._least_squares import non_negative_fit
from vime_schedule._costs._polynomial import PolynomialCost
from vime_schedule._errors import ScheduleError


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A measured cost, how well it explains the log, and the lengths for which it may speak.

    Args:
        polynomial: seconds of one sample as a function of its length, at any length.
        overhead: seconds every micro-batch costs whatever it holds.
        r_squared: share of the variance of the measured seconds that the fit explains; 1 is all of it.
        shortest: shortest measured sample, in tokens.
        longest: longest measured sample, in tokens.
        num_observations: micro-batches in the log.

    A calibration is itself a cost, restricted to the measured lengths:

    >>> log = [([100], 2.0), ([200], 3.0), ([300], 4.0), ([100, 200], 4.0)]
    >>> fit = calibrate(log)
    >>> round(fit.r_squared, 6), round(fit.overhead, 6), round(fit(250), 6)
    (1.0, 1.0, 2.5)
    """

    polynomial: PolynomialCost
    overhead: float
    r_squared: float
    shortest: int
    longest: int
    num_observations: int

    def __call__(self, length: int) -> float:
        """Return the seconds of one sample of `length` tokens, without the overhead of its micro-batch.

        Raises:
            ScheduleError: `length` lies outside the measured lengths.
        """
        if not self.shortest <= length <= self.longest:
            raise ScheduleError(
                f"length {length} is outside the calibrated {self.shortest}..{self.longest} tokens, where the fit "
                "knows nothing: measure such a length and calibrate again, or use `.polynomial` at your own risk."
            )
        return self.polynomial(length)


def calibrate(observations: Iterable[tuple[Sequence[int], float]]) -> Calibration:
    """Fit a cost to measured micro-batches.

    Args:
        observations: per micro-batch, the lengths of its samples in tokens and the seconds it took.

    Raises:
        ScheduleError: an observation is empty or not a number, there are fewer than four, or they all look alike.
    """
    log = [_checked(position, lengths, seconds) for position, (lengths, seconds) in enumerate(observations)]
    measured = [length for lengths, _ in log for length in lengths]
    seconds = [value for _, value in log]
    if len(log) < 4:
        raise ScheduleError(f"calibrate: {len(log)} observations cannot fix four coefficients: give at least 4.")
    if len(set(seconds)) == 1 or len(set(measured)) == 1:
        alike = "took the same time" if len(set(seconds)) == 1 else f"hold samples of {measured[0]} tokens only"
        raise ScheduleError(f"calibrate: all {len(log)} micro-batches {alike}: measure short and long ones.")
    columns = [
        [1] * len(log),
        [len(lengths) for lengths, _ in log],
        [sum(lengths) for lengths, _ in log],
        [sum(length * length for length in lengths) for lengths, _ in log],
    ]
    overhead, constant, linear, quadratic = non_negative_fit(columns, seconds)
    if not (constant or linear or quadratic):
        raise ScheduleError(
            "calibrate: the time does not grow with the tokens, so no length costs more than another: "
            "check that lengths and seconds belong to the same micro-batches."
        )
    fitted = [
        overhead + constant * n + linear * tokens + quadratic * squares
        for _, n, tokens, squares in zip(*columns, strict=True)
    ]
    return Calibration(
        polynomial=PolynomialCost(constant, linear, quadratic),
        overhead=overhead,
        r_squared=_r_squared(seconds, fitted),
        shortest=min(measured),
        longest=max(measured),
        num_observations=len(log),
    )


def _r_squared(measured: list[float], fitted: list[float]) -> float:
    """Return 1 - residual sum of squares / total sum of squares."""
    mean = math.fsum(measured) / len(measured)
    residual = math.fsum((y - f) ** 2 for y, f in zip(measured, fitted, strict=True))
    return 1.0 - residual / math.fsum((y - mean) ** 2 for y in measured)


def _checked(position: int, lengths: Sequence[int], seconds: float) -> tuple[tuple[int, ...], float]:
    """Return one observation, or say what is wrong with it."""
    where = f"calibrate: observation {position}"
    if not lengths:
        raise ScheduleError(f"{where} has no samples: give the lengths of the micro-batch.")
    for length in lengths:
        if not isinstance(length, int) or isinstance(length, bool) or length < 1:
            raise ScheduleError(f"{where} has the length {length!r}: give whole numbers of tokens, at least 1.")
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not math.isfinite(seconds) or seconds <= 0:
        raise ScheduleError(f"{where} took {seconds!r} seconds: give a finite number above 0.")
    return tuple(lengths), float(seconds)
