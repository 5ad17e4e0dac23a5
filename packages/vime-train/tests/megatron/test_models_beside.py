"""What stands beside the policy: the critic in every layout, the reference from the start of training, schedules."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

DESCENT = {"lr": 10.0, "adam_eps": 1000.0, "clip_grad": 1e3}
PPO = {
    "algorithm": {"advantage": "gae", "gamma": 0.95, "lam": 0.9, "old_log_probs": "recompute"},
    "critic": {"lr": 10.0},
    "optimizer": DESCENT,
}
KL = {"algorithm": {"kl": {"coefficient": 0.5}, "old_log_probs": "recompute"}, "optimizer": DESCENT}
LAYOUTS = [{"dp": 2}, {"cp": 2}, {"tp": 2, "pp": 2}, {"pp": 2, "vpp": 2}]


@pytest.fixture(scope="module")
def on_one_rank() -> list[dict[str, float]]:
    """Reports of two iterations of PPO on one rank, filled by the first test that needs them."""
    return []


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_t1_holds_for_the_critic(
    layout: dict[str, int],
    start: Callable[..., object],
    run_config: Callable[..., object],
    plan_batches: Callable[..., object],
    on_one_rank: list[dict[str, float]],
) -> None:
    """The second iteration has values that are not 0, so that GAE, its returns and the clip are compared too."""
    if not on_one_rank:
        on_one_rank += two_iterations({}, start, run_config, plan_batches)
        assert on_one_rank[1]["value_loss"] < on_one_rank[0]["value_loss"]
    found = two_iterations(layout, start, run_config, plan_batches)
    for report, wanted in zip(found, on_one_rank, strict=True):
        assert report.keys() == wanted.keys()
        for name, value in wanted.items():
            assert report[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name


def two_iterations(
    layout: dict[str, int], start: Callable[..., object], run_config: Callable[..., object], plan_batches: object
) -> list[dict[str, float]]:
    config = run_config(layout, **PPO)
    job = start(config)
    return [job.train(plan_batches(config))[0] for _ in range(2)]


@pytest.mark.parametrize("clip", [0.001, 0.0])
def test_the_value_clip_holds_values_near_those_of_the_rollout(
    clip: float,
    start: Callable[..., object],
    run_config: Callable[..., object],
    plan_batches: Callable[..., object],
) -> None:
    config = run_config({}, **{**PPO, "critic": {"lr": 10.0, "value_clip": clip}})
    first, second = start(config).train(plan_batches(config, steps=[6, 6]))
    assert first["value_clip_fraction"] == 0, "values have not moved yet"
    assert (second["value_clip_fraction"] > 0.1) == (clip > 0)


@pytest.mark.parametrize("settings", [PPO, KL], ids=["critic", "reference"])
@pytest.mark.parametrize(("layout", "other"), [({"dp": 2}, {"cp": 2}), ({"tp": 2, "pp": 2}, {"dp": 2})], ids=str)
def test_a_checkpoint_keeps_what_stands_beside_the_policy(
    settings: dict[str, object],
    layout: dict[str, int],
    other: dict[str, int],
    start: Callable[..., object],
    run_config: Callable[..., object],
    plan_batches: Callable[..., object],
    tmp_path: Path,
) -> None:
    """The next step is bit for bit the same in the same layout, and the same to rounding in another one."""
    config = run_config(layout, **settings)
    job = start(config)
    job.train(plan_batches(config))
    job.call("save", str(tmp_path))
    followed = job.train(plan_batches(config))

    same = start(config)
    assert set(same.call("load", str(tmp_path))) == {"exact"}
    assert same.train(plan_batches(config)) == followed

    elsewhere_config = run_config(other, **settings)
    elsewhere = start(elsewhere_config)
    assert set(elsewhere.call("load", str(tmp_path))) == {"weights"}
    (report,) = elsewhere.train(plan_batches(elsewhere_config))
    for name in ("loss", "grad_norm", "kl", "value_loss"):
        if name in followed[0]:
            assert report[name] == pytest.approx(followed[0][name], rel=1e-4, abs=1e-6), name
    assert "kl" in report or "value_loss" in report


def test_the_reference_is_the_policy_at_the_start_of_training_and_stays(
    start: Callable[..., object], run_config: Callable[..., object], plan_batches: Callable[..., object]
) -> None:
    """A supervised step before it moves the reference too; steps after it do not."""
    config = run_config({"dp": 2}, **KL)
    job = start(config)
    job.call_batch("supervised_step", plan_batches(config), lr=10.0)
    reports = job.train(plan_batches(config, steps=[4, 4, 4]))
    reports += job.train(plan_batches(config))
    assert reports[0]["kl"] == pytest.approx(0, abs=1e-9)
    assert all(later["kl"] > 1e-5 for later in reports[1:])


@pytest.mark.parametrize("layout", [{}, {"tp": 2, "pp": 2}], ids=str)
def test_a_renewed_reference_is_the_policy_of_then_also_after_a_load(
    layout: dict[str, int],
    start: Callable[..., object],
    run_config: Callable[..., object],
    plan_batches: Callable[..., object],
    tmp_path: Path,
) -> None:
    config = run_config(layout, **KL)
    job = start(config)
    (began,) = job.train(plan_batches(config))
    (moved,) = job.train(plan_batches(config))
    assert began["kl"] == pytest.approx(0, abs=1e-9)
    assert moved["kl"] > 1e-5
    job.call("renew_reference")
    job.call("save", str(tmp_path))
    (renewed,) = job.train(plan_batches(config))
    assert renewed["kl"] == pytest.approx(0, abs=1e-9)
    (after,) = job.train(plan_batches(config))
    assert after["kl"] > 1e-5

    resumed = start(config)
    resumed.call("load", str(tmp_path))
    assert [resumed.train(plan_batches(config))[0] for _ in range(2)] == [renewed, after]


def test_a_critic_alone_leaves_the_policy_as_it_is_and_learns(
    start: Callable[..., object],
    run_config: Callable[..., object],
    plan_batches: Callable[..., object],
    read_weights: Callable[[Path], dict[str, np.ndarray]],
    tmp_path: Path,
) -> None:
    config = run_config({"dp": 2}, **PPO)
    job = start(config)
    job.call("export", str(tmp_path / "before"))
    alone = job.train(plan_batches(config, steps=[6, 6]), critic_only=True)
    job.call("export", str(tmp_path / "after"))
    before, after = (read_weights(tmp_path / name) for name in ("before", "after"))
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert alone[1]["value_loss"] < alone[0]["value_loss"]
    for report in alone:
        assert all(name.startswith(("critic_", "value_")) or name == "rollouts" for name in report), report
    (together,) = job.train(plan_batches(config))
    assert together["approx_kl"] == pytest.approx(0, abs=1e-6), "the policy had not moved"
    assert together["grad_norm"] > 0
    assert together["value_loss"] < alone[0]["value_loss"]


def test_a_teacher_from_the_reference_needs_no_directory(
    start: Callable[..., object], run_config: Callable[..., object], plan_batches: Callable[..., object]
) -> None:
    section = {"advantage": "none", "distillation": {"coefficient": 1.0}, "old_log_probs": "recompute"}
    config = run_config({}, algorithm=section, optimizer=DESCENT)
    job = start(config)
    (first,) = job.train(plan_batches(config))
    assert first["reverse_kl"] == pytest.approx(0, abs=1e-6)
    assert first["grad_norm"] < 1e-5


def test_a_served_teacher_gives_the_step_of_one_in_the_trainers(
    start: Callable[..., object],
    run_config: Callable[..., object],
    plan_batches: Callable[..., object],
    tiny_model: Callable[..., Path],
) -> None:
    """Its log-probs come with the batch; the trainers never open its directory."""
    distillation = {"coefficient": 0.5, "teacher": str(tiny_model("llama"))}
    section = {"advantage": "none", "distillation": distillation, "old_log_probs": "recompute"}
    here = run_config({"dp": 2}, algorithm=section, optimizer=DESCENT)
    expected = start(here).train(plan_batches(here))
    scores = start(run_config({"dp": 2}), tiny_model("llama")).call_batch("log_probs", plan_batches(here))

    elsewhere = {**section, "distillation": {**distillation, "teacher": "nowhere", "engines": 1}}
    served = run_config({"dp": 2}, algorithm=elsewhere, optimizer=DESCENT)
    batches = [
        replace(batch, columns={"teacher_log_probs": tuple(found)})
        for batch, found in zip(plan_batches(served), scores, strict=True)
    ]
    assert start(served).train(batches) == expected
    assert abs(expected[0]["reverse_kl"]) > 0.01


def test_a_model_of_another_vocabulary_is_refused(
    start: Callable[..., object], run_config: Callable[..., object], tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    settings = json.loads((tiny_model("llama") / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(settings | {"vocab_size": 50}))
    config = run_config({}, algorithm={"kl": {"coefficient": 0.5, "reference": str(tmp_path)}})
    with pytest.raises(Exception, match="has 50 vocabulary entries but the policy has 48: tokens would mean"):
        start(config)


SCHEDULE = {"lr": 1.0, "schedule": "linear", "warmup_rollouts": 8, "decay_rollouts": 32, "adam_eps": 1e6}


def test_the_learning_rate_follows_rollouts_through_steps_of_any_size_and_a_checkpoint(
    start: Callable[..., object],
    run_config: Callable[..., object],
    plan_batches: Callable[..., object],
    tmp_path: Path,
) -> None:
    """Warm-up over 8 rollouts, then to 0 at 32: after 4, 12 | 18, 24 rollouts, whatever the number of steps."""
    config = run_config({}, optimizer=SCHEDULE)
    job = start(config)
    rates = [report["lr"] for report in job.train(plan_batches(config, steps=[4, 8]))]
    job.call("save", str(tmp_path))
    resumed = start(config)
    resumed.call("load", str(tmp_path))
    rates += [report["lr"] for report in resumed.train(plan_batches(config, steps=[6, 6]))]
    rates += [report["lr"] for report in resumed.train(plan_batches(config))]
    assert rates == pytest.approx([4 / 8, 20 / 24, 14 / 24, 8 / 24, 0.0])


def test_a_rate_of_zero_moves_nothing_and_the_critic_follows_the_schedule(
    start: Callable[..., object], run_config: Callable[..., object], plan_batches: Callable[..., object]
) -> None:
    settings = {**PPO, "optimizer": {**DESCENT, "schedule": "cosine", "decay_rollouts": 12}}
    config = run_config({}, **settings)
    job = start(config)
    first, last = job.train(plan_batches(config, steps=[6, 6]))
    assert (first["lr"], first["critic_lr"]) == pytest.approx((5.0, 5.0))
    assert (last["lr"], last["critic_lr"]) == pytest.approx((0.0, 0.0))
    (after,) = job.train(plan_batches(config))
    (again,) = job.train(plan_batches(config))
    assert after["loss"] == again["loss"]
