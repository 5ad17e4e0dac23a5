"""Gradients that are not finite: the step is skipped on every rank, counted, and its cause named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

LAYOUTS = [{}, {"dp": 2}, {"cp": 2}, {"tp": 2}, {"pp": 2}, {"pp": 2, "vpp": 2}]


def poison(batches: object, position: int, value: float) -> object:
    """The same batches with one token's advantage of one sample replaced; the token is not masked."""
    poisoned = []
    for batch in batches:
        advantages = [column.copy() for column in batch.advantages]
        if position in batch.schedule.partition:
            member = batch.schedule.partition.index(position)
            advantages[member][np.flatnonzero(batch.loss_masks[member])[0]] = value
        poisoned.append(replace(batch, advantages=tuple(advantages)))
    return poisoned


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_bad_sample_is_skipped_counted_and_named(
    layout: dict[str, int],
    value: float,
    start: Callable[..., object],
    run_config: Callable[..., object],
    plan_batches: Callable[..., object],
    read_weights: Callable[..., object],
    tiny_model: Callable[..., Path],
    tmp_path: Path,
) -> None:
    config = run_config(layout)
    job = start(config)
    good = plan_batches(config)
    (report,) = job.train(poison(good, 4, value))
    assert report["skipped"] == 1
    assert not np.isfinite(report["grad_norm"])
    job.call("export", str(tmp_path / "out"))
    before, after = read_weights(tiny_model()), read_weights(tmp_path / "out")
    for name, tensor in before.items():
        np.testing.assert_array_equal(after[name], tensor, err_msg=name)

    (records, *others) = job.call("skipped", target="rank")
    assert all(repr(other) == repr(records) for other in others)
    (record,) = records
    assert record.step == 0
    assert record.samples == (4,)
    assert "decoder.layers.3.mlp.linear_fc2.weight" in record.parameters

    (healthy,) = job.train(good)
    assert healthy["skipped"] == 0, "the next step is taken"
    assert np.isfinite(healthy["grad_norm"])


def test_a_nan_at_a_masked_token_does_no_harm(
    start: Callable[..., object], run_config: Callable[..., object], plan_batches: Callable[..., object]
) -> None:
    config = run_config({"dp": 2})
    clean = plan_batches(config)
    dirty = [
        replace(
            batch,
            advantages=tuple(
                np.where(mask == 0, np.float32("nan"), column)
                for mask, column in zip(batch.loss_masks, batch.advantages, strict=True)
            ),
        )
        for batch in clean
    ]
    assert start(config).train(dirty) == start(config).train(clean)
