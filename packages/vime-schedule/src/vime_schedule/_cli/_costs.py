"""The cost model named on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from vime_schedule._cli._files import read_text
from vime_schedule._costs import Calibration, FlopsCost, PolynomialCost, token_cost
from vime_schedule._errors import ScheduleError

CALIBRATION_NUMBERS = ("constant", "linear", "quadratic", "overhead", "r_squared")
CALIBRATION_COUNTS = ("shortest", "longest", "num_observations")


def parse_cost(text: str) -> Callable[[int], float]:
    """Return the model that `--cost` names.

    >>> parse_cost("polynomial:0,2,0")(100)
    200.0
    """
    kind, _, rest = text.partition(":")
    if text == "tokens":
        return token_cost
    if kind == "polynomial":
        return _polynomial(rest)
    if kind == "flops" and rest:
        return FlopsCost.from_hf_config(_read_object(rest))
    if kind == "measured" and rest:
        return load_calibration(rest)
    raise ScheduleError(
        f"--cost is {text!r}: give tokens, polynomial:A,B,C, flops:CONFIG.json or measured:CALIBRATION.json."
    )


def dump_calibration(calibration: Calibration) -> dict[str, Any]:
    """Return what `measured:` reads back."""
    polynomial = calibration.polynomial
    return {
        "constant": polynomial.constant,
        "linear": polynomial.linear,
        "quadratic": polynomial.quadratic,
        **{name: getattr(calibration, name) for name in ("overhead", "r_squared", *CALIBRATION_COUNTS)},
    }


def load_calibration(path: str) -> Calibration:
    """Read what `calibrate -o` wrote."""
    fields = _read_object(path)
    for name in (*CALIBRATION_NUMBERS, *CALIBRATION_COUNTS):
        kind = int if name in CALIBRATION_COUNTS else int | float
        if not isinstance(fields.get(name), kind) or isinstance(fields[name], bool):
            raise ScheduleError(
                f"{path}: `{name}` is {fields.get(name)!r} but must be a number: give the file of `calibrate -o`."
            )
    return Calibration(
        polynomial=PolynomialCost(fields["constant"], fields["linear"], fields["quadratic"]),
        **{name: fields[name] for name in ("overhead", "r_squared", *CALIBRATION_COUNTS)},
    )


def _polynomial(text: str) -> PolynomialCost:
    try:
        constant, linear, quadratic = map(float, text.split(","))
    except ValueError as error:
        raise ScheduleError(
            f"--cost polynomial:{text}: give three numbers (per sample, token, token squared), as in 0,24576,1."
        ) from error
    return PolynomialCost(constant, linear, quadratic)


def _read_object(path: str) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        value = json.loads(read_text(path))
    except ValueError as error:
        if isinstance(error, ScheduleError):
            raise
        raise ScheduleError(f"{path} is not valid JSON ({error}): give the whole file.") from error
    if not isinstance(value, dict):
        raise ScheduleError(f"{path} holds a JSON {type(value).__name__}: give an object.")
    return value
