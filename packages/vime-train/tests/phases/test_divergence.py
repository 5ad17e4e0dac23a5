"""Steps that are skipped in a row end the run; single ones do not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vime_train.phases import DivergenceError, DivergenceGuard


def stops_after(skipped: list[bool], limit: int) -> int | None:
    guard = DivergenceGuard(limit, log=Path("no-such.log"))
    for number, value in enumerate(skipped, start=1):
        try:
            guard.saw({"skipped": float(value), "lr": 0.1}, model="policy")
        except DivergenceError:
            return number
    return None


@given(skipped=st.lists(st.booleans(), max_size=30), limit=st.integers(1, 5))
def test_the_run_ends_at_the_first_full_row_of_skipped_steps(skipped: list[bool], limit: int) -> None:
    rows = [number for number in range(limit, len(skipped) + 1) if all(skipped[number - limit : number])]
    assert stops_after(skipped, limit) == (rows[0] if rows else None)


def test_the_error_names_the_setting_and_shows_the_log(tmp_path: Path) -> None:
    log = tmp_path / "trainer-0.log"
    log.write_text("process 1\nstep 7 skipped: parameters ... lm_head.weight\n")
    guard = DivergenceGuard(1, log=log)
    with pytest.raises(DivergenceError, match=r"lower `supervised\.lr` \(it was 0\.1\)") as caught:
        guard.saw({"skipped": 1.0, "lr": 0.1}, model="supervised")
    assert "lm_head.weight" in str(caught.value)


def test_a_critic_that_diverges_alone_is_named_with_its_own_rate() -> None:
    """While the critic is trained alone there are no numbers of the policy."""
    guard = DivergenceGuard(2, log=Path("no-such.log"))
    step = {"critic_skipped": 1.0, "critic_lr": 0.25}
    guard.saw(step, model="critic")
    with pytest.raises(DivergenceError, match=r"lower `critic\.lr` \(it was 0\.25\)"):
        guard.saw(step, model="critic")
