"""Over-sampling and partial rollouts that cannot work, or would do nothing, are refused at launch."""

from __future__ import annotations

import pytest

from vime_train.config import ConfigError, Machine, check_launch, load_config

HERE = Machine(cores=2, memory_gib=24.0, gpus=0)
BASE = ("data.max_prompt_tokens=32", "rollout.prompts_per_iteration=8", "rollout.max_new_tokens=64")
PARTIAL = "rollout.partial_rollout=true"


def check(*overrides: str) -> None:
    check_launch(load_config(overrides=[*BASE, *overrides]), machine=HERE, vocab_size=64)


@pytest.mark.parametrize(
    "overrides",
    [
        [PARTIAL, "rollout.max_new_tokens_per_iteration=16"],
        [PARTIAL, "rollout.over_sampling_prompts=12"],
        [PARTIAL, "rollout.max_new_tokens_per_iteration=16", "rollout.mask_off_policy=true"],
        [PARTIAL, "rollout.group_filter=vime_train.rollout.filters:reward_varies", "rollout.max_draws=2"],
        ["rollout.over_sampling_prompts=12", "rollout.group_filter=vime_train.rollout.filters:reward_varies"],
    ],
)
def test_what_works_passes(overrides: list[str]) -> None:
    check(*overrides)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            [PARTIAL, "rollout.over_sampling_prompts=4"],
            r"over_sampling_prompts = 4 is less than rollout\.prompts_per_iteration = 8",
        ),
        (["rollout.over_sampling_prompts=12"], "4 of them would be generated and thrown away"),
        (
            ["rollout.max_new_tokens_per_iteration=16"],
            r"max_new_tokens_per_iteration = 16 needs rollout\.partial_rollout = true",
        ),
        (
            [PARTIAL, "rollout.max_new_tokens_per_iteration=64"],
            r"= 64 cuts nothing: it must be below rollout\.max_new_tokens = 64",
        ),
        (
            [PARTIAL, "rollout.max_new_tokens_per_iteration=16", "rollout.group_reward=math:dist"],
            r"group_reward = 'math:dist' judges all answers to a problem together",
        ),
        ([PARTIAL], "partial_rollout = true keeps nothing"),
        (["rollout.mask_off_policy=true"], "mask_off_policy = true is read by nothing"),
        (
            [PARTIAL, "rollout.over_sampling_prompts=12", "rollout.mask_off_policy=true"],
            "only finished groups wait, and all of their tokens would be masked",
        ),
    ],
)
def test_what_does_nothing_or_contradicts_itself_is_told(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(*overrides)


def test_a_temperature_of_zero_is_refused() -> None:
    """Reference fault #2297: it divided by zero after the first generation."""
    with pytest.raises(ConfigError, match=r"rollout\.temperature = 0: input should be greater than 0"):
        load_config(overrides=["rollout.temperature=0"])
