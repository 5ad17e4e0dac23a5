"""Plans: another one is refused on every rank, fillers change nothing, splits change nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

DESCENT = {"lr": 100.0, "adam_eps": 1000.0, "clip_grad": 1e3}
LAYOUTS = [{}, {"dp": 2}, {"cp": 2}, {"tp": 2}, {"pp": 2}, {"pp": 2, "vpp": 2}, {"dp": 2, "cp": 2}]


@pytest.mark.parametrize("layout", [{"dp": 2}, {"cp": 2}, {"pp": 2}], ids=str)
@pytest.mark.parametrize("name", ["train", "log_probs", "log_prob_difference"])
def test_a_rank_with_another_plan_stops_the_call_on_all(
    layout: dict[str, int],
    name: str,
    start: Callable[..., object],
    run_config: Callable[..., object],
    plan_batches: Callable[..., object],
) -> None:
    config = run_config(layout)
    batches = plan_batches(config)
    mine = [batches[rank % config.layout.dp] for rank in range(2)]
    mine[1] = replace(mine[1], fingerprint="0" * 64)
    job = start(config)
    with pytest.raises(Exception, match=r"ranks \[1\] hold another plan than rank 0") as error:
        job.call_each(name, mine)
    assert str(error.value).count("PlanMismatchError") == 2, "both ranks know"
    assert "give all ranks parts of one schedule" in str(error.value)
    assert job.train(batches), "the trainers go on"


def test_steps_of_another_size_are_refused(
    start: Callable[..., object], run_config: Callable[..., object], plan_batches: Callable[..., object]
) -> None:
    config = run_config({"dp": 2})
    one, two = plan_batches(config, steps=[12])[0], plan_batches(config, steps=[6, 6])[1]
    with pytest.raises(Exception, match="hold another plan"):
        start(config).call_each("train", [one, replace(two, fingerprint=one.fingerprint)])


@pytest.mark.parametrize(("planned", "given"), [(4, [0, 1]), (2, [0, 0]), (1, [0, 0])], ids=["4", "twice", "1"])
def test_parts_that_are_not_the_whole_plan_are_refused(
    planned: int,
    given: list[int],
    start: Callable[..., object],
    run_config: Callable[..., object],
    plan_batches: Callable[..., object],
) -> None:
    """A plan for four data-parallel ranks or for one, on two of them; and a part of the right one given to both."""
    config = run_config({"dp": 2})
    parts = plan_batches(run_config({"dp": planned}))
    job = start(config)
    with pytest.raises(Exception, match=r"hold \d+ unmasked response tokens, the plan has \d+ for dp=2") as error:
        job.call_each("train", [parts[part] for part in given])
    assert str(error.value).count("PlanMismatchError") == 2, "both ranks know"
    assert "made for another number of data-parallel ranks" in str(error.value)
    assert job.train(plan_batches(config)), "the trainers go on"


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_fillers_take_part_and_change_nothing(
    layout: dict[str, int],
    start: Callable[..., object],
    run_config: Callable[..., object],
    plan_batches: Callable[..., object],
    rollouts: object,
    read_weights: Callable[..., object],
    tmp_path: Path,
) -> None:
    """One sample, one step: some replica, or some stage, has micro-batches of padding alone."""

    def batches(config: object) -> tuple[object, ...]:
        return tuple(
            replace(batch, advantages=tuple(np.ones_like(column) for column in batch.advantages))
            for batch in plan_batches(config, only=rollouts[:1])
        )

    config = run_config(layout, optimizer=DESCENT)
    mine = batches(config)
    if not any(() in batch.schedule.micro_batch_indices for batch in mine):
        mine = tuple(with_filler(batch) for batch in mine)
    job = start(config)
    (report,) = job.train(mine)
    job.call("export", str(tmp_path / "out"))
    alone = start(run_config({}, optimizer=DESCENT))
    (expected,) = alone.train(batches(run_config({})))
    alone.call("export", str(tmp_path / "alone"))
    assert expected["grad_norm"] > 0.1
    assert report["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-5)
    assert report["tokens"] == expected["tokens"]
    found, wanted = read_weights(tmp_path / "out"), read_weights(tmp_path / "alone")
    for name, tensor in wanted.items():
        np.testing.assert_allclose(found[name], tensor, atol=1e-5, err_msg=name)


def with_filler(batch: object) -> object:
    """One more micro-batch, of nothing, at the end of the only step."""
    schedule = batch.schedule
    longer = replace(
        schedule,
        micro_batch_indices=(*schedule.micro_batch_indices, ()),
        num_microbatches=(schedule.num_microbatches[0] + 1,),
    )
    return replace(batch, schedule=longer)


@pytest.mark.parametrize("budget", [70, 96, 400])
def test_the_cut_into_micro_batches_changes_nothing(
    budget: int, start: Callable[..., object], run_config: Callable[..., object], plan_batches: Callable[..., object]
) -> None:
    config = run_config({"dp": 2}, optimizer=DESCENT)
    (report,) = start(config).train(plan_batches(config, budget=budget))
    (expected,) = start(config).train(plan_batches(config, budget=200))
    assert report["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-5)
    assert report["loss"] == pytest.approx(expected["loss"], rel=1e-5)


@pytest.mark.parametrize("layout", [{}, {"dp": 2}, {"cp": 2}], ids=str)
def test_a_step_of_fully_masked_samples_moves_nothing(
    layout: dict[str, int],
    start: Callable[..., object],
    run_config: Callable[..., object],
    plan_batches: Callable[..., object],
    rollouts: object,
) -> None:
    config = run_config(layout)
    masked = [rollout for rollout in rollouts if not any(any(sample.loss_mask) for sample in rollout.samples)]
    assert masked
    (report,) = start(config).train(plan_batches(config, only=masked))
    assert report["loss"] == report["grad_norm"] == report["tokens"] == report["skipped"] == 0


def test_supervised_steps_take_one_step_and_lower_the_loss(
    start: Callable[..., object], run_config: Callable[..., object], plan_batches: Callable[..., object]
) -> None:
    config = run_config({"dp": 2})
    job = start(config)
    batches = [
        replace(batch, weights=np.full(len(batch.tokens), 1 / batch.step_mask_sums[0]))
        for batch in plan_batches(config)
    ]
    losses = [job.call_batch("supervised_step", batches, lr=lr)[0] for lr in (1e-2, 5e-3, 1e-3)]
    assert [report["lr"] for report in losses] == [1e-2, 5e-3, 1e-3], "the rate is set per step"
    assert losses[0]["loss"] > losses[1]["loss"] > losses[2]["loss"]
    with pytest.raises(Exception, match="the plan has 2 steps: plan one optimizer step per call"):
        job.call_batch("supervised_step", plan_batches(config, steps=[6, 6]), lr=1e-3)


def test_a_world_of_another_size_is_refused(
    run_config: Callable[..., object], ranks: object, tiny_model: Callable[..., Path]
) -> None:
    from vime_train.megatron._groups import start_groups

    with pytest.raises(ValueError, match="world_size is 3 but layout dp=2 cp=1 tp=1 pp=1 needs 2 ranks"):
        start_groups(run_config({"dp": 2}).layout, rank=0, world_size=3, init_method="file:///none", timeout_seconds=1)


@pytest.mark.parametrize("rank", [-1, 2])
def test_a_rank_outside_the_world_is_refused(rank: int, run_config: Callable[..., object]) -> None:
    from vime_train.megatron._groups import start_groups

    with pytest.raises(ValueError, match=f"rank is {rank} but a world of 2 has ranks 0 to 1"):
        start_groups(
            run_config({"dp": 2}).layout, rank=rank, world_size=2, init_method="file:///none", timeout_seconds=1
        )
