"""Law T4 for the algorithm: options that contradict each other, or that nothing reads, are refused with a remedy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vime_train.config import ConfigError, Machine, check_launch, load_config

LAPTOP = Machine(cores=2, memory_gib=24.0, gpus=0)
KEPT = "rollout.drop_zero_variance=false"
SUPPORTED = {
    "PPO": ["algorithm.advantage=gae", KEPT, "algorithm.lam=0.95", "algorithm.gamma=0.99", "critic.lr=1e-4"],
    "RLOO": ["algorithm.advantage=rloo"],
    "Dr.GRPO": ["algorithm.advantage=dr_grpo", "algorithm.aggregation=constant", "algorithm.constant_tokens=128"],
    "GSPO": ["algorithm.loss=gspo"],
    "CISPO": ["algorithm.loss=cispo", "algorithm.clip_high=2.0"],
    "DAPO": ["algorithm.aggregation=token_mean", "algorithm.clip_high=0.28", "algorithm.dual_clip=3.0"],
    "REINFORCE++": [
        "algorithm.advantage=reinforce_plus_plus",
        KEPT,
        "algorithm.kl.coefficient=0.01",
        "algorithm.kl.placement=reward",
    ],
    "REINFORCE++ baseline": ["algorithm.advantage=reinforce_plus_plus_baseline", KEPT],
    "SFT": ["algorithm.advantage=none", "algorithm.loss=sft", KEPT],
    "distillation": ["algorithm.advantage=none", "algorithm.distillation.coefficient=1.0", KEPT],
    "corrected": [
        "algorithm.old_log_probs=recompute",
        "algorithm.correction.kind=mis",
        "algorithm.correction.veto=1e-4",
    ],
    "PPO with a warm-up": ["algorithm.advantage=gae", KEPT, "critic.warmup_iterations=3"],
    "reference that follows": ["algorithm.kl.coefficient=0.1", KEPT, "algorithm.kl.reference_every=5"],
    "cosine": ["optimizer.schedule=cosine", "optimizer.warmup_rollouts=512", "optimizer.min_lr=1e-5"],
}


def problems(*overrides: str) -> str:
    try:
        check_launch(load_config(["arithmetic.toml"], overrides), machine=LAPTOP, vocab_size=64)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", SUPPORTED)
def test_every_algorithm_can_be_configured(name: str) -> None:
    assert problems(*SUPPORTED[name]) == ""


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (["critic.warmup_iterations=2"], "critic.warmup_iterations = 2 is read by nothing in this run"),
        (
            ["algorithm.advantage=gae", KEPT, "critic.warmup_iterations=20"],
            "critic.warmup_iterations = 20 of train.iterations = 20: the policy would never be trained",
        ),
        (["algorithm.kl.reference_every=2"], "algorithm.kl.reference_every = 2 is read by nothing in this run"),
        (
            [
                "algorithm.kl.coefficient=0.1",
                KEPT,
                "algorithm.kl.reference_every=2",
                "algorithm.kl.reference=models/start",
            ],
            "algorithm.kl.reference = 'models/start' is a model that stays",
        ),
        (["algorithm.advantage=gae"], "'gae' is not relative to a group: set rollout.drop_zero_variance = false."),
        (["algorithm.advantage=reinforce_plus_plus"], "is not relative to a group"),
        (["algorithm.advantage=reinforce_plus_plus_baseline"], "advantages are whitened over all rollouts"),
        (["algorithm.whiten=true"], "advantages are whitened over all rollouts"),
        (["algorithm.kl.coefficient=0.1"], "algorithm.kl.coefficient = 0.1 trains on every rollout"),
        (["algorithm.entropy_coefficient=0.1"], "algorithm.entropy_coefficient = 0.1 trains on every rollout"),
        (["algorithm.distillation.coefficient=2.0"], "algorithm.distillation.coefficient = 2 trains on every rollout"),
        (["algorithm.advantage=none", KEPT], "nothing would be learnt. Name an estimator"),
        (["algorithm.loss=sft"], "algorithm.loss = 'sft' reads no advantages, but algorithm.advantage = 'grpo'"),
        (
            ["algorithm.loss=sft", "algorithm.advantage=none", "algorithm.distillation.coefficient=1.0", KEPT],
            "algorithm.distillation.coefficient = 1 changes them: use algorithm.loss = 'policy'.",
        ),
        (
            ["rollout.rollouts_per_prompt=1", "rollout.prompts_per_iteration=512", KEPT],
            "a group of one has advantage 0",
        ),
        (
            ["algorithm.aggregation=constant"],
            "for Dr.GRPO the longest response, rollout.max_attempts * rollout.max_new_tokens = 128.",
        ),
        (
            ["algorithm.kl.coefficient=0.1", "algorithm.kl.placement=reward", KEPT],
            "Use algorithm.kl.placement = 'loss'.",
        ),
        (["rollout.temperature=0.7"], "Use algorithm.old_log_probs = 'recompute', which the trainers do at this"),
        (
            ["rollout.temperature=0.7", "algorithm.old_log_probs=recompute", "algorithm.correction.kind=tis"],
            "the engine's log-probs, at temperature 1, cannot be compared. Use one of the two.",
        ),
        (["algorithm.correction.kind=tis"], "takes the engine's for both: use 'recompute'."),
        (
            [
                "algorithm.correction.kind=tis",
                "algorithm.old_log_probs=recompute",
                "algorithm.correction.low=3.0",
                "algorithm.correction.high=2.0",
            ],
            "algorithm.correction.low = 3 is above algorithm.correction.high = 2",
        ),
        (["optimizer.schedule=linear", "optimizer.min_lr=1.0"], "optimizer.min_lr = 1 is above optimizer.lr"),
        (
            ["optimizer.schedule=linear", "optimizer.warmup_rollouts=100", "optimizer.decay_rollouts=100"],
            "optimizer.warmup_rollouts = 100 of 100 rollouts",
        ),
        (
            ["algorithm.advantage=gae", KEPT, "megatron.sequence_parallel=true"],
            "the critic's head needs every token on every TP rank",
        ),
        (
            ["algorithm.advantage=rloo", "algorithm.advantage_function=vime_train.algorithm:advantages"],
            "replaces the estimator, and algorithm.advantage = 'rloo' is another one",
        ),
    ],
    ids=str,
)
def test_what_contradicts_itself_is_refused_with_a_remedy(overrides: list[str], text: str) -> None:
    assert text in problems(*overrides)


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ("algorithm.divide_by_std=false", ["algorithm.advantage=rloo"]),
        ("algorithm.gamma=0.9", []),
        ("algorithm.lam=0.9", ["algorithm.advantage=reinforce_plus_plus", KEPT]),
        ("critic.lr=0.5", []),
        ("critic.value_clip=0.5", []),
        ("algorithm.clip_low=0.1", SUPPORTED["SFT"]),
        ("algorithm.clip_high=0.1", SUPPORTED["SFT"]),
        ("algorithm.dual_clip=3.0", SUPPORTED["GSPO"]),
        ("algorithm.off_policy_delta=0.1", SUPPORTED["SFT"]),
        ("algorithm.whiten=true", SUPPORTED["SFT"]),
        ("algorithm.constant_tokens=100", []),
        ("algorithm.kl.estimator=k1", []),
        ("algorithm.kl.placement=reward", []),
        ("algorithm.kl.unbiased=true", []),
        ("algorithm.kl.reference=somewhere", []),
        ("algorithm.correction.kind=tis", [*SUPPORTED["SFT"], "algorithm.old_log_probs=recompute"]),
        ("algorithm.correction.low=0.5", []),
        ("algorithm.correction.high=5.0", []),
        ("algorithm.correction.level=sequence", []),
        ("algorithm.correction.mode=truncate", []),
        ("algorithm.correction.veto=0.5", []),
        ("algorithm.distillation.teacher=somewhere", []),
        ("optimizer.decay_rollouts=100", []),
        ("optimizer.min_lr=1e-9", []),
    ],
    ids=str,
)
def test_an_option_that_nothing_reads_is_refused(given: str, base: list[str]) -> None:
    key = given.partition("=")[0]
    assert problems(*base) == ""
    assert f"{key} = " in problems(*base, given)
    assert "is read by nothing in this run: remove it, or " in problems(*base, given)


def test_a_part_of_the_distribution_is_not_trained_on_with_log_probs_of_all_of_it() -> None:
    text = problems("rollout.top_p=0.9")
    assert text.startswith("rollout.top_p = 0.9: ")
    assert "Use rollout.top_p = 1; evaluation.sets.NAME.top_p may be lower." in text
    assert problems("rollout.top_p=0.9", *SUPPORTED["SFT"]) == "", "no ratio is computed"
    assert problems("rollout.top_p=0.9", "debug.rollout_only=true") == ""


def test_the_default_configuration_reads_every_option_it_sets() -> None:
    assert problems() == ""


def save_config(directory: Path, **values: int) -> str:
    sizes = {
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "hidden_size": 64,
        "vocab_size": 64,
        "max_position_embeddings": 512,
    }
    (directory / "config.json").write_text(json.dumps(sizes | values))
    return str(directory)


@pytest.mark.parametrize("key", ["algorithm.kl.reference", "algorithm.distillation.teacher"])
def test_another_model_must_fit_the_policy(key: str, tmp_path: Path) -> None:
    coefficient = f"{key.rpartition('.')[0]}.coefficient=0.1"
    assert problems(coefficient, f"{key}={save_config(tmp_path)}", KEPT) == ""
    assert "has 63 vocabulary entries, the policy 64" in problems(
        coefficient, f"{key}={save_config(tmp_path, vocab_size=63)}", KEPT
    )
    assert "has 32 positions, the longest possible sample" in problems(
        coefficient, f"{key}={save_config(tmp_path, max_position_embeddings=32)}", KEPT
    )
    assert "3 layers" in problems(
        coefficient, f"{key}={save_config(tmp_path, num_hidden_layers=3)}", KEPT, "layout.pp=2", "layout.dp=1"
    )
    assert f"{key} = '{tmp_path / 'absent'}': there is no" in problems(
        coefficient, f"{key}={tmp_path / 'absent'}", KEPT
    )


SERVED = (
    "algorithm.advantage=none",
    "algorithm.distillation.coefficient=1.0",
    KEPT,
    "algorithm.distillation.engines=1",
)


def test_a_served_teacher_need_not_fit_the_layout(tmp_path: Path) -> None:
    layout = ("layout.pp=2", "layout.dp=1")
    teacher = f"algorithm.distillation.teacher={save_config(tmp_path, num_hidden_layers=3)}"
    assert problems(*SERVED, teacher, *layout) == ""
    assert "3 layers" in problems(*SERVED[:-1], teacher, *layout)
    assert "has 63 vocabulary entries" in problems(
        *SERVED, f"algorithm.distillation.teacher={save_config(tmp_path, vocab_size=63)}"
    )


def test_a_served_teacher_needs_room_for_one_more_token(tmp_path: Path) -> None:
    longest = load_config(["arithmetic.toml"]).max_sample_tokens
    key = "algorithm.distillation.teacher"
    assert "tokens and one more" in problems(*SERVED, f"{key}={save_config(tmp_path, max_position_embeddings=longest)}")
    assert problems(*SERVED, f"{key}={save_config(tmp_path, max_position_embeddings=longest + 1)}") == ""
    assert problems(*SERVED[:-1], f"{key}={save_config(tmp_path, max_position_embeddings=longest)}") == ""


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (SERVED, "algorithm.distillation.engines = 1 serve nothing: set algorithm.distillation.teacher"),
        (
            (*SERVED, "rollout.temperature=0.5", "algorithm.old_log_probs=recompute"),
            "vLLM scores at temperature 1. Let the trainers score the teacher (engines = 0), or sample at 1.",
        ),
        (("algorithm.distillation.engines=1",), "algorithm.distillation.engines = 1 is read by nothing in this run"),
    ],
)
def test_a_served_teacher_that_cannot_work_is_refused(overrides: tuple[str, ...], text: str) -> None:
    assert text in problems(*overrides)
