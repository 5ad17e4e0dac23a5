"""A hook that runs when a trainer starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


def test_every_rank_calls_it_once_its_groups_stand(
    start: Callable[..., object], run_config: Callable[..., object], tmp_path: Path
) -> None:
    start(run_config({"dp": 2}, run_dir=str(tmp_path), hooks={"before_model": ["start_hook:note"]}))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"rank-0": "0 of 2", "rank-1": "1 of 2"}


def test_one_that_raises_is_named_and_the_rank_can_start_again(
    start: Callable[..., object], run_config: Callable[..., object], tmp_path: Path
) -> None:
    with pytest.raises(Exception, match=r"hooks\.before_model = 'start_hook:refuse' raised ConnectionError"):
        start(run_config({}, hooks={"before_model": ["start_hook:refuse"]}))
    start(run_config({}, run_dir=str(tmp_path), hooks={"before_model": ["start_hook:note"]}))
    assert (tmp_path / "rank-0").read_text() == "0 of 1"
