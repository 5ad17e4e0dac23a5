"""Profiles of the trainers: written where asked, for every rank, and the numbers stay the same."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from vime_train.megatron._recording import recorded


def operators(path: Path) -> set[str]:
    """The names of the operators in a trace."""
    with gzip.open(path, "rt") as file:
        return {event["name"] for event in json.load(file)["traceEvents"] if event.get("cat") == "cpu_op"}


def test_every_rank_writes_its_trace_and_trains_as_without(
    start: Callable[..., Any],
    run_config: Callable[..., Any],
    plan_batches: Callable[..., Any],
    tmp_path: Path,
) -> None:
    config = run_config({"dp": 2})
    batches = plan_batches(config)
    plain = start(config).train(batches)
    traced = start(config).call_batch("train", batches, trace_to=str(tmp_path / "profile"))
    assert traced == [plain, plain]
    for rank in range(2):
        found = operators(tmp_path / "profile" / f"trainer-{rank}.trace.json.gz")
        assert {"aten::mm", "c10d::allreduce_"} <= found


def test_without_a_directory_nothing_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with recorded(0):
        torch.ones(2).add(1)
    assert list(tmp_path.iterdir()) == []


def test_a_block_that_fails_leaves_no_trace(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), recorded(0, trace_to=str(tmp_path)):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
