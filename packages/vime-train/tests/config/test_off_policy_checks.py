"""One step off-policy: what cannot work, or would hide that older weights sampled, is refused at launch."""

from __future__ import annotations

import pytest

from vime_train.config import ConfigError, Machine, check_launch, load_config

HERE = Machine(cores=2, memory_gib=24.0, gpus=0)
ONE_STEP = "rollout.one_step_off_policy=true"
RECOMPUTE = "algorithm.old_log_probs=recompute"


def check(*overrides: str) -> None:
    check_launch(load_config(overrides=[ONE_STEP, *overrides]), machine=HERE, vocab_size=64)


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        [RECOMPUTE, "algorithm.correction.kind=tis"],
        ["rollout.partial_rollout=true", "rollout.max_new_tokens_per_iteration=16", "rollout.mask_off_policy=true"],
        [RECOMPUTE, "algorithm.loss=sft", "algorithm.advantage=none", "rollout.drop_zero_variance=false"],
    ],
)
def test_what_works_passes(overrides: list[str]) -> None:
    check(*overrides)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["debug.load_rollouts=runs/one/rollouts"], "nothing is generated, so nothing can be generated ahead"),
        (["debug.rollout_only=true"], "nothing is trained meanwhile"),
        ([RECOMPUTE], "ratios would begin at 1"),
        ([RECOMPUTE, "rollout.temperature=0.8"], r"at rollout\.temperature = 1"),
        (["rollout.mask_off_policy=true"], "all tokens of an iteration are of the same weights"),
    ],
)
def test_what_cannot_work_is_refused_with_the_remedy(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(*overrides)
