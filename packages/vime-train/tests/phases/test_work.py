"""The time in which nobody worked."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from vime_train.phases import Work


class Told:
    """Processes that tell these seconds, reading after reading."""

    def __init__(self, *readings: Sequence[float]) -> None:
        self._readings = iter(readings)

    def busy_seconds(self) -> Sequence[float]:
        return next(self._readings)


def test_groups_in_turns_leave_the_rest_of_the_time() -> None:
    trainers, engines = Told([10.0, 10.0], [12.0, 11.5]), Told([5.0], [6.0])
    assert Work([trainers, engines]).orchestration(seconds=3.25) == pytest.approx(0.25)


def test_an_engine_that_was_started_again_counts_with_what_it_did_since() -> None:
    assert Work([Told([50.0], [1.0])]).orchestration(seconds=3.0) == pytest.approx(2.0)


def test_clocks_that_differ_a_little_give_no_time_below_zero() -> None:
    assert Work([Told([0.0], [2.0001])]).orchestration(seconds=2.0) == 0.0
