"""Batches come out of another process as they went in."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from vime_train.rollout._wire import joined, parted


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, dict):
        return list(ours) == list(theirs) and all(same(ours[name], theirs[name]) for name in theirs)
    return (
        isinstance(ours, tuple)
        and len(ours) == len(theirs)
        and all(
            a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b)
            for a, b in zip(ours, theirs, strict=True)
        )
    )


def column(dtype: type) -> st.SearchStrategy[tuple[Any, ...]]:
    one = st.integers(0, 5).flatmap(lambda size: arrays.arrays(dtype, size, elements=st.integers(-9, 9)))
    return st.lists(one, max_size=6).map(tuple)


@given(column(np.int64) | column(np.float32) | st.dictionaries(st.sampled_from("ab"), column(np.float32)))
def test_columns_come_out_as_they_went_in(value: Any) -> None:
    assert same(parted(pickle.loads(pickle.dumps(joined(value)))), value)


def test_a_column_is_one_array_on_its_way() -> None:
    """What it is for: two hundred arrays of ten tokens, and two buffers."""
    buffers: list[pickle.PickleBuffer] = []
    pickle.dumps(joined(tuple(np.arange(10) for _ in range(200))), protocol=5, buffer_callback=buffers.append)
    assert len(buffers) == 2


@pytest.mark.parametrize(
    "value", [(), (1, 2), "text", (np.zeros(2), np.zeros(2, np.float32)), (np.zeros((2, 2)),), np.zeros(3)]
)
def test_what_is_no_such_column_stays_as_it_is(value: Any) -> None:
    assert joined(value) is value
