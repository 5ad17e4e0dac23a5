"""Columns of many small arrays as one array each: between processes every array costs more than its content.

Always true: `parted(joined(column))` is the column, with the types that it had; what is no such column stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True)
class _Joined:
    """The arrays of a column behind each other, and where each ends."""

    values: npt.NDArray[Any]
    ends: npt.NDArray[np.int64]


def joined(value: Any) -> Any:
    """A column, or a mapping of names to columns, with one array in place of many of one type and one dimension.

    Example:
        >>> parted(joined((np.array([1, 2]), np.array([3]))))
        (array([1, 2]), array([3]))
    """
    if isinstance(value, Mapping):
        return {name: joined(column) for name, column in value.items()}
    if not isinstance(value, tuple) or not value or not all(isinstance(one, np.ndarray) for one in value):
        return value
    if len({one.dtype for one in value}) > 1 or any(one.ndim != 1 for one in value):
        return value
    return _Joined(values=np.concatenate(value), ends=np.cumsum([len(one) for one in value]))


def parted(value: Any) -> Any:
    """What `joined` was given."""
    if isinstance(value, Mapping):
        return {name: parted(column) for name, column in value.items()}
    if not isinstance(value, _Joined):
        return value
    return tuple(np.split(value.values, value.ends[:-1]))
