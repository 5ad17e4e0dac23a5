"""What a sample costs, as a function of its length: the plain models.

Laws
- A cost is never negative, and grows with length.
- The cost of a micro-batch is the sum over its samples; only ratios between costs matter to a plan.

Any callable from a length to a number serves as a cost. `FlopsCost` counts a model's matmuls; `calibrate` measures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vime_schedule._errors import ScheduleError


def token_cost(length: int) -> int:
    """Cost a sample by its tokens: right for short samples, blind to attention growing with the square.

    >>> token_cost(1024)
    1024
    """
    return length


@dataclass(frozen=True, slots=True)
class PolynomialCost:
    """`constant + linear * length + quadratic * length**2`, in any unit: FLOPs, seconds, or none.

    Args:
        constant: paid once per sample.
        linear: paid per token (projections, MLP, head).
        quadratic: paid per squared token (attention).

    Raises:
        ScheduleError: a coefficient is negative or not finite, or all are zero.

    >>> PolynomialCost(0.0, 24576.0, 1.0)(1000)
    25576000.0
    """

    constant: float
    linear: float
    quadratic: float

    def __post_init__(self) -> None:
        coefficients = {"constant": self.constant, "linear": self.linear, "quadratic": self.quadratic}
        for name, value in coefficients.items():
            if not math.isfinite(value) or value < 0:
                raise ScheduleError(
                    f"PolynomialCost: `{name}` is {value!r} but costs grow with length: give a number, 0 or more."
                )
        if not any(coefficients.values()):
            raise ScheduleError(
                "PolynomialCost: all coefficients are 0, so every plan costs nothing: give one above 0."
            )

    def __call__(self, length: int) -> float:
        """Return the cost of one sample of `length` tokens."""
        return self.constant + length * (self.linear + self.quadratic * length)
