"""What a sample costs: counted in tokens, by a polynomial, by the FLOPs of a model, or measured."""

from __future__ import annotations

from vime_schedule._costs._calibrate import Calibration, calibrate
from vime_schedule._costs._flops import FlopsCost
from vime_schedule._costs._polynomial import PolynomialCost, token_cost

__all__ = ["Calibration", "FlopsCost", "PolynomialCost", "calibrate", "token_cost"]
