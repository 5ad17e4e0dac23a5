"""The doctor: it finds the classic bugs and names the law they break, and it lets every loss of this package pass."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from vime_cp import (
    cispo_loss,
    distillation_loss,
    entropy_bonus,
    gspo_loss,
    icepop,
    kl,
    megatron_loss,
    mis,
    policy_loss,
    sample_sums,
    sample_weights,
    sft_loss,
    tis,
    to_tokens,
    value_loss,
    weighted_sum,
    whiten,
)
from vime_cp.invariance import LAWS, Report, Shard, check
from vime_cp.invariance.__main__ import main

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = [law.name for law in LAWS]
SPLITS = {"micro-batches", "data parallel", "context parallel", "all at once"}


def broken(report: Report) -> set[str]:
    return {result.law.name for result in report.results if result.failure is not None}


def ppo(shard: Shard) -> torch.Tensor:
    return policy_loss(shard.log_probs, shard.old_log_probs, shard.advantages, mask=shard.batch.mask).loss


def unmasked_sum(shard: Shard, loss: torch.Tensor) -> torch.Tensor:
    return torch.where(shard.batch.mask != 0, loss, 0).sum()


def weighted(shard: Shard, loss: torch.Tensor, aggregation: str = "rollout_mean") -> torch.Tensor:
    ids: dict[str, Any] = {"rollout_ids": shard.step.rollout_ids} if aggregation == "rollout_mean" else {}
    weights = sample_weights(aggregation, shard.step.mask_sums, **ids)[list(shard.samples)]
    return weighted_sum(loss, shard.batch.mask, weights, shard.batch.sample_index)


def whole_sequences(shard: Shard) -> dict[str, Any]:
    batch = shard.batch
    return {"mask": batch.mask, "sample_index": batch.sample_index, "num_samples": batch.num_samples, "cp": batch.cp}


GOOD: dict[str, Callable[[Shard], torch.Tensor]] = {
    "policy_loss": ppo,
    "cispo_loss": lambda s: cispo_loss(s.log_probs, s.old_log_probs, s.advantages, mask=s.batch.mask).loss,
    "gspo_loss": lambda s: (
        gspo_loss(s.log_probs, s.old_log_probs, s.advantages, clip_low=0.1, clip_high=0.1, **whole_sequences(s)).loss
    ),
    "kl": lambda s: kl(s.log_probs, s.ref_log_probs, mask=s.batch.mask),
    "entropy_bonus": lambda s: entropy_bonus(s.entropy, 0.1, mask=s.batch.mask),
    "value_loss": lambda s: value_loss(s.values, s.returns, old_values=s.old_values, mask=s.batch.mask).loss,
    "sft_loss": lambda s: sft_loss(s.log_probs, mask=s.batch.mask),
    "distillation_loss": lambda s: distillation_loss(s.log_probs, s.ref_log_probs, mask=s.batch.mask),
    "tis": lambda s: ppo(s) * tis(s.old_log_probs, s.rollout_log_probs, high=1.1, mask=s.batch.mask).weights,
    "icepop": lambda s: ppo(s) * icepop(s.old_log_probs, s.rollout_log_probs, low=0.9, mask=s.batch.mask).weights,
    "mis": lambda s: (
        ppo(s) * mis(s.old_log_probs, s.rollout_log_probs, level="sequence", high=1.2, **whole_sequences(s)).weights
    ),
}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("aggregation", ["rollout_mean", "token_mean"])
def test_every_loss_of_this_package_passes(name: str, aggregation: str) -> None:
    report = check(lambda shard: weighted(shard, GOOD[name](shard), aggregation), examples=4)
    assert report.holds, report
    assert [result.examples for result in report.results] == [4] * len(LAWS)


def per_micro_batch_mean(shard: Shard) -> torch.Tensor:
    """transformers #34191, verl #6957: every micro-batch is averaged over its own tokens."""
    tokens = shard.step.mask_sums[list(shard.samples)].sum().clamp_min(1)
    return unmasked_sum(shard, ppo(shard)) / tokens * shard.step.cp


def cp_local_denominator(shard: Shard) -> torch.Tensor:
    """Megatron #7513: a sample's mean over the tokens that this CP rank happens to hold."""
    batch, loss = shard.batch, ppo(shard)
    held = sample_sums(torch.ones_like(loss), batch.mask, batch.sample_index, batch.num_samples)
    live = (shard.step.mask_sums > 0).sum().clamp_min(1)
    return weighted_sum(loss, batch.mask, 1 / (held.clamp_min(1) * live), batch.sample_index)


def phantom_token(shard: Shard) -> torch.Tensor:
    """miles #2796: the token count of every sample is clamped to 1."""
    return unmasked_sum(shard, ppo(shard)) / shard.step.mask_sums.clamp_min(1).sum()


def mean_of_means(shard: Shard) -> torch.Tensor:
    """TRL #3231: every rank averages over its own tokens, and the ranks are averaged."""
    return unmasked_sum(shard, ppo(shard)) / (shard.batch.mask != 0).sum().clamp_min(1)


def cp_factor_forgotten(shard: Shard) -> torch.Tensor:
    """slime #990: right without CP, cp times too small with it."""
    return unmasked_sum(shard, ppo(shard)) / shard.step.mask_sums.sum().clamp_min(1) / shard.step.cp


def rank_local_whitening(shard: Shard) -> torch.Tensor:
    """slime #2235: advantages whitened with the statistics of the tokens at hand."""
    advantages = whiten(shard.advantages, shard.batch.mask)
    return weighted(shard, policy_loss(shard.log_probs, shard.old_log_probs, advantages, mask=shard.batch.mask).loss)


def zero_over_zero(shard: Shard) -> torch.Tensor:
    """unsloth-zoo #1286: a step whose tokens are all masked divides by nothing."""
    return unmasked_sum(shard, ppo(shard)) / shard.step.mask_sums.sum()


def zero_times_nan(shard: Shard) -> torch.Tensor:
    """slime 5.3-12: what is multiplied by a mask of 0 is not gone."""
    ratio = torch.exp(shard.log_probs - shard.old_log_probs)
    return (-ratio * shard.advantages * shard.batch.mask).sum() / shard.step.mask_sums.sum().clamp_min(1)


def nan_in_the_gradient_only(shard: Shard) -> torch.Tensor:
    """The loss is selected, but its derivative at masked positions is 0 * NaN."""
    loss = torch.exp(shard.log_probs * 1.0) * shard.advantages
    return unmasked_sum(shard, loss) / shard.step.mask_sums.sum().clamp_min(1)


def position_in_the_batch(shard: Shard) -> torch.Tensor:
    """A weight that follows the place in the micro-batch instead of the sample."""
    place = torch.arange(len(shard.samples), dtype=torch.float64) + 1
    return unmasked_sum(shard, ppo(shard) * to_tokens(place, shard.batch.sample_index))


def replicated_gradient(shard: Shard) -> torch.Tensor:
    """slime #1748 turned round: each rank keeps its own part of a gradient that should be summed; the loss is right."""
    batch = shard.batch
    sums = sample_sums(
        shard.log_probs, batch.mask, batch.sample_index, batch.num_samples, cp=batch.cp, gradient="replicated"
    )
    return weighted(shard, to_tokens(sums, batch.sample_index).square())


def skips_its_collective(shard: Shard) -> torch.Tensor:
    """slime #2235, SkyRL #1817: a rank without tokens returns early, and the others wait for it."""
    if not shard.batch.mask.any():
        return shard.log_probs.new_zeros(())
    return weighted(shard, GOOD["gspo_loss"](shard))


BUGS: list[tuple[Callable[[Shard], torch.Tensor], str, set[str]]] = [
    (per_micro_batch_mean, "mean", {"micro-batches", "data parallel", "all at once", "fillers"}),
    (cp_local_denominator, "sum", {"context parallel", "all at once"}),
    (phantom_token, "sum", {"masked samples"}),
    (mean_of_means, "mean", {*SPLITS, "fillers"}),
    (cp_factor_forgotten, "sum", {"context parallel", "all at once"}),
    (rank_local_whitening, "sum", {*SPLITS}),
    (zero_over_zero, "sum", {"all masked"}),
    (zero_times_nan, "sum", {"masked values"}),
    (nan_in_the_gradient_only, "sum", {"masked values"}),
    (position_in_the_batch, "sum", {"micro-batches", "data parallel", "all at once", "sample order", "masked samples"}),
    (replicated_gradient, "sum", {"context parallel", "all at once"}),
    (skips_its_collective, "sum", {"context parallel", "all at once", "masked values", "fillers"}),
]


@pytest.mark.parametrize(("bug", "combine", "laws"), BUGS, ids=[bug.__name__ for bug, _, _ in BUGS])
def test_the_classic_bugs_are_caught_and_the_law_is_named(
    bug: Callable[[Shard], torch.Tensor], combine: Any, laws: set[str]
) -> None:
    report = check(bug, combine=combine, examples=12)
    assert broken(report) == laws, report


def test_the_failing_split_is_shrunk_to_the_smallest() -> None:
    failure = check(cp_local_denominator, laws=["context parallel"]).failure("context parallel")
    assert failure is not None
    assert len(failure.case.samples) == 1
    assert failure.case.samples[0].mask == (1, 1)
    assert (failure.case.split.cp, failure.case.split.layout, failure.case.split.ranks) == (2, "zigzag", (((0,),),))
    assert failure.text.endswith("(2 times)")
    failure = check(per_micro_batch_mean, combine="mean", laws=["micro-batches"]).failure("micro-batches")
    assert failure is not None
    assert sorted(len(sample.mask) for sample in failure.case.samples) == [1, 2]
    assert len(failure.case.split.ranks) == 1
    assert failure.case.split.num_microbatches == 2


def test_a_wrong_gradient_is_named_by_column_sample_and_token() -> None:
    failure = check(replicated_gradient, laws=["context parallel"]).failure("context parallel")
    assert failure is not None
    assert failure.text.startswith("the gradient of log_probs at sample 0, response token ")


def test_a_rank_that_would_hang_is_named() -> None:
    failure = check(skips_its_collective, laws=["context parallel"]).failure("context parallel")
    assert failure is not None
    assert "MissingRankError: rank" in failure.text


def test_what_the_loss_function_raises_is_a_failure() -> None:
    def fails(shard: Shard) -> torch.Tensor:
        raise KeyError("no such column")

    report = check(fails, examples=1)
    assert broken(report) == set(NAMES)
    assert "the loss function raised KeyError: 'no such column'" in str(report)
    report = check(lambda shard: shard.log_probs, examples=1, laws=["data parallel"])
    assert "returned shape (" in str(report)
    report = check(lambda shard: 1.0, examples=1, laws=["data parallel"])
    assert "returned float: return a scalar tensor" in str(report)


@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("forget_cp", [False, True])
def test_a_megatron_loss_function_is_examined_with_megatrons_scaling(per_token: bool, forget_cp: bool) -> None:
    def triple(shard: Shard) -> Any:
        step = shard.step
        return megatron_loss(
            weighted(shard, ppo(shard)),
            log={},
            num_microbatches=step.num_microbatches,
            dp=step.dp,
            cp=1 if forget_cp else step.cp,
            calculate_per_token_loss=per_token,
        )

    report = check(triple, combine="megatron_per_token" if per_token else "megatron", examples=4)
    assert broken(report) == ({"context parallel", "all at once"} if forget_cp else set()), report


def test_the_same_seed_gives_the_same_report() -> None:
    first, again, other = (check(mean_of_means, seed=seed, laws=["data parallel"]) for seed in (3, 3, 4))
    assert str(first) == str(again)
    assert str(first) != str(other)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"laws has \['cp'\]: give some of \['micro-batches'"):
        check(ppo, laws=["cp"])
    with pytest.raises(ValueError, match="laws has nothing"):
        check(ppo, laws=[])
    with pytest.raises(ValueError, match=r"combine is 'avg': give one of \('sum', 'mean'"):
        check(ppo, combine="avg")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="examples is 0"):
        check(ppo, examples=0)
    with pytest.raises(ValueError, match="no law 'data parallel' was examined"):
        check(mean_of_means, laws=["sample order"]).failure("data parallel")


MODULE = """
import torch
from vime_cp import sample_weights, weighted_sum

def right(shard):
    weights = sample_weights("token_mean", shard.step.mask_sums)[list(shard.samples)]
    return weighted_sum(-shard.log_probs, shard.batch.mask, weights, shard.batch.sample_index)

def wrong(shard):
    return (-shard.log_probs * shard.batch.mask).sum() / shard.batch.mask.sum().clamp_min(1)

number = 3
"""


def test_the_command_line_prints_the_table_and_exits_with_the_verdict(tmp_path: Path) -> None:
    (tmp_path / "my_losses.py").write_text(MODULE)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "vime_cp.invariance", *arguments, "--examples", "5"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    right = run("my_losses:right")
    assert right.returncode == 0, right.stderr
    assert right.stdout.count(" yes ") == len(LAWS)
    wrong = run("my_losses:wrong", "--combine", "mean", "--law", "data parallel", "--law", "sample order")
    assert wrong.returncode == 1, wrong.stderr
    assert "data parallel  NO" in wrong.stdout
    assert "sample order   yes" in wrong.stdout
    assert "data parallel: the loss is" in wrong.stdout


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("my_losses", "give module:function"),
        ("no_such_module:right", "No module named 'no_such_module': run from the folder that holds the module"),
        ("my_losses:nothing", "my_losses has no function 'nothing'"),
        ("my_losses:number", "my_losses has no function 'number'"),
    ],
)
def test_wrong_command_lines_exit_with_2(
    function: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_losses.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SystemExit) as exit_info:
        main([function])
    assert exit_info.value.code == 2
    assert message in capsys.readouterr().err


def test_the_readme_shows_what_the_doctor_prints(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parent.parent / "README.md").read_text()
    match = re.search(r"```python\n(from vime_cp.invariance .*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    assert match is not None
    exec(compile(match[1], "README", "exec"), {})
    assert capsys.readouterr().out == match[2]
