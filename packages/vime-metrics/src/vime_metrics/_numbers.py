"""Reading numbers that callers hand in: Python, numpy, and tensors on any device.

A tensor is read exactly once, in one transfer, also when a list of tensors is given.
torch is never imported here: an object can only be a tensor where torch is loaded already.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, SupportsFloat, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vime_metrics._errors import MetricError

if TYPE_CHECKING:
    import torch

Array: TypeAlias = NDArray[np.float64]
Values: TypeAlias = "ArrayLike | torch.Tensor | Sequence[torch.Tensor]"

MAX_EXACT_INTEGER = 2**53
"""Every integer up to here is a float64; counts are exact below it."""


def as_float(value: SupportsFloat, what: str) -> float:
    """`value` as a Python float; `what` names it in the error."""
    if type(value) is float:
        return value
    if isinstance(value, str | bytes):
        raise MetricError(f"{what} must be a number, given {value!r}.")
    try:
        return float(_one_element(value))
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise MetricError(f"{what} must be one real number, given {value!r}: {error}.") from error


def as_count(value: object, what: str) -> int:
    """`value` as a Python int of at least 0; at most 2**53; floats are refused unless integral."""
    number = value if type(value) is int else as_float(value, what)  # type: ignore[arg-type]  # it refuses the rest
    if number != number // 1 or not 0 <= number <= MAX_EXACT_INTEGER:
        raise MetricError(f"{what} must be a whole number from 0 to 2**53, given {value!r}.")
    return int(number)


def as_array(values: Values, what: str) -> Array:
    """`values` flattened to float64, shape [values]."""
    array = np.asarray(_off_device(values))
    if array.dtype.kind not in "fiub" and array.size:
        raise MetricError(f"{what} must be real numbers, given an array of {array.dtype} ({_excerpt(values)}).")
    return np.ascontiguousarray(array.reshape(-1), dtype=np.float64)


def split_finite(values: Array) -> tuple[Array, int]:
    """The finite values, and how many were NaN or infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):  # which NaN and infinity would not leave so; saves a flag per value
            return values, 0
    finite = values[np.isfinite(values)]
    return finite, values.size - finite.size


def _one_element(value: SupportsFloat) -> SupportsFloat:
    """Arrays of one element are numbers; a tensor that requires a gradient is one without it."""
    if isinstance(value, np.ndarray) and value.size == 1:
        return value.reshape(())
    loaded = sys.modules.get("torch")
    if loaded is not None and isinstance(value, loaded.Tensor):
        detached: SupportsFloat = value.detach()
        return detached
    return value


def _off_device(values: Values) -> ArrayLike:
    loaded = sys.modules.get("torch")
    if loaded is None:
        return values
    if isinstance(values, list | tuple) and values and isinstance(values[0], loaded.Tensor):
        values = loaded.cat([loaded.as_tensor(value).detach().reshape(-1) for value in values])
    if isinstance(values, loaded.Tensor):
        host: NDArray[np.float64] = values.detach().cpu().to(loaded.float64).numpy()
        return host
    return values


def _excerpt(values: object) -> str:
    text = repr(values)
    return text if len(text) <= 60 else f"{text[:57]}..."
