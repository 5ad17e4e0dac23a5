"""The supervised learning rate: up in a line, down in a cosine, never to nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vime_train.config import SupervisedSection
from vime_train.phases import learning_rate


@given(warmup=st.integers(0, 50), decay=st.integers(1, 500), step=st.integers(0, 1000))
def test_it_stays_between_nothing_and_the_peak(warmup: int, decay: int, step: int) -> None:
    section = SupervisedSection(lr=2.0, warmup_steps=warmup, decay_steps=decay)
    assert 0 < learning_rate(section, step) <= 2.0


def test_a_hand_computed_course() -> None:
    """Peak 1, four warm-up steps, decay over eight: the cosine at step 4 of 8 is one half."""
    section = SupervisedSection(lr=1.0, warmup_steps=4, decay_steps=8)
    assert learning_rate(section, 3) == 0.05 + 0.95 * 0.5
    assert abs(learning_rate(section, 7) - 0.05) < 1e-12
    assert abs(learning_rate(section, 100) - 0.05) < 1e-12
    assert learning_rate(section, 0) < 0.25
