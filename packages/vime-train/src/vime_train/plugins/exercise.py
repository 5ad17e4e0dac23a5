"""Contract tests that users run on their own extensions, from the command line or from their own tests.

Always true: an exercise calls the extension as a run would, on small made-up input, and checks what it returns as a run
would; it needs no model, no GPU and no network.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vime_train.config import AlgorithmSection, RolloutSection, RunConfig, TrackingSection
from vime_train.data import load_source
from vime_train.data.arithmetic import ArithmeticSums
from vime_train.engine import Completion, GenerationRequest
from vime_train.plugins._calling import calling
from vime_train.plugins._contracts import CONTRACTS, extension_point
from vime_train.plugins._hooks import run_hooks, run_start_hooks
from vime_train.plugins._import_path import PluginError
from vime_train.report import open_sinks
from vime_train.rollout import Answer, Collector, assemble, batch_advantages, load_reward

if TYPE_CHECKING:
    from torch import Tensor

    from vime_cp.invariance import Shard
    from vime_train.data import DataSource
    from vime_train.rollout import Rollout

ANSWERS = (
    Answer(text="", finished=True),
    Answer(text="#13", finished=True),
    Answer(text="#13", finished=False),
    Answer(text="a7,7b6,13#13" * 50, finished=True),
    Answer(text="\u4e09 \u22c5 \U0001f600", finished=True),
)


def exercise(path: str, key: str, config: RunConfig | None = None) -> list[str]:
    """Check the extension at an import path against the extension point `key`; what was checked, one line each.

    An entry of a table, such as `rollout.rewards.code`, is exercised as what the table holds.

    Raises:
        PluginError: if it does not fit, or there is no such extension point.
        RewardError, RolloutError, PluginCallError, DataError: if it fails when called.

    Example:
        >>> exercise("vime_train.rollout.filters:reward_varies", "rollout.group_filter")[-1]
        'rollout.group_filter: accepted 4 of 4 groups'
    """
    exercises: dict[str, Callable[[str, RunConfig], list[str]]] = {
        "rollout.function": _rollouts,
        "rollout.group_filter": _rollouts,
        "rollout.sample_filter": _rollouts,
        "rollout.buffer_order": _order,
        "rollout.reward": _reward,
        "rollout.group_reward": _reward,
        "algorithm.advantage_function": _advantages,
        "algorithm.loss_function": _loss,
        "hooks.before_model": _start_hook,
        "hooks.before_log_probs": _hook,
        "hooks.before_train_step": _hook,
        "tracking.sinks": _sink,
        "data.source": _source,
    }
    point = extension_point(key)
    if point not in exercises:
        raise PluginError(f"there is no extension point {key!r}: one of {', '.join(sorted(exercises))} is needed.")
    config = config or RunConfig()
    section, _, field = point.partition(".")
    value = (path,) if section in ("tracking", "hooks") else path
    changed = getattr(config, section).model_copy(update={field: value})
    checked = exercises[point](key, config.model_copy(update={section: changed}))
    contract = [f"{key}: {path} can be called as {CONTRACTS[point].call}"] if point in CONTRACTS else []
    return [*contract, *checked]


class MadeUpEngine:
    """Answers without a model: right, wrong and cut answers in turn."""

    def __init__(self, source: ArithmeticSums) -> None:
        self._source = source

    def generate(self, requests: Sequence[GenerationRequest]) -> list[list[Completion]]:
        """One completion per sample asked for."""
        return [[self._answer(request, place) for place in range(request.num_samples)] for request in requests]

    def load_weights(self, directory: str, *, version: int) -> None:
        """There are none."""

    def close(self) -> None:
        """Nothing is held."""

    def _answer(self, request: GenerationRequest, place: int) -> Completion:
        prompt = self._source.tokenizer.decode(request.prompt_tokens)
        total = sum(int(digit) for digit in prompt.partition("=")[0][1::2])
        kind = (request.seed + place) % 3
        text = "1" * request.max_new_tokens if kind == 2 else f"#{total + kind}"
        tokens = (*self._source.tokenizer.encode(text), self._source.tokenizer.eos_token_id)[: request.max_new_tokens]
        return Completion(
            tokens=tokens,
            log_probs=(-0.5,) * len(tokens),
            finish_reason="length" if kind == 2 else "stop",
            weight_version=0,
        )


_ITERATIONS = 4
"""Of a partial rollout: enough to go on with answers that the first ones left unfinished."""


def _small(section: RolloutSection) -> RolloutSection:
    over = None if section.over_sampling_prompts is None else 6
    return section.model_copy(
        update={"prompts_per_iteration": 4, "rollouts_per_prompt": 4, "over_sampling_prompts": over}
    )


def _collect(config: RunConfig) -> list[Rollout]:
    source = ArithmeticSums()
    small = config.model_copy(update={"rollout": _small(config.rollout)})
    collector, engine = Collector(small, source), MadeUpEngine(source)
    iterations = _ITERATIONS if config.rollout.partial_rollout else 1
    return [rollout for _ in range(iterations) for rollout in collector.collect(engine).rollouts]


def _rollouts(key: str, config: RunConfig) -> list[str]:
    rollouts = _collect(config)
    if key == "rollout.group_filter":
        return [f"{key}: accepted {len({rollout.group_id for rollout in rollouts})} of 4 groups"]
    samples = sum(len(rollout.samples) for rollout in rollouts)
    asked = f"{_ITERATIONS} iterations" if config.rollout.partial_rollout else "4 problems"
    return [f"{key}: {asked} gave {len(rollouts)} rollouts with {samples} samples that can be trained on"]


def _order(key: str, config: RunConfig) -> list[str]:
    waiting = {"partial_rollout": True, "over_sampling_prompts": 6, "max_new_tokens_per_iteration": None}
    section = config.rollout.model_copy(update=waiting)
    rollouts = _collect(config.model_copy(update={"rollout": section}))
    groups = {rollout.group_id for rollout in rollouts}
    return [f"{key}: {_ITERATIONS} iterations took {len(groups)} of the groups that waited, in its order"]


def _reward(key: str, config: RunConfig) -> list[str]:
    source = ArithmeticSums()
    reward = load_reward(config.rollout, source)
    problem = replace(source.problems(1, seed=0, start=0)[0], answer="13")
    rewards = reward(problem, ANSWERS)
    shown = ", ".join(f"{one.value:g}" for one in rewards)
    (single,) = reward(problem, ANSWERS[:1])
    parts = sorted({name for one in rewards for name in one.parts})
    beside = [f"{key}: reports {', '.join(parts)} beside it"] if parts else []
    return [f"{key}: {len(ANSWERS)} answers scored {shown}; a group of one scored {single.value:g}", *beside]


def _advantages(key: str, config: RunConfig) -> list[str]:
    rollouts = _collect(RunConfig())
    section = AlgorithmSection(advantage_function=config.algorithm.advantage_function)
    arrays = batch_advantages(rollouts, section)
    return [f"{key}: {len(arrays)} samples have one finite number per response token"]


def _loss(key: str, config: RunConfig) -> list[str]:
    """The loss on random splits over micro-batches, DP and CP: value and gradient may not depend on the split."""
    from vime_cp import sample_weights, weighted_sum
    from vime_cp.invariance import check
    from vime_train.algorithm import policy_terms

    def loss_of(shard: Shard) -> Tensor:
        weights = sample_weights("rollout_mean", shard.step.mask_sums, rollout_ids=shard.step.rollout_ids)
        terms = policy_terms(
            config.algorithm,
            log_probs=shard.log_probs,
            old_log_probs=shard.old_log_probs,
            advantages=shard.advantages,
            packed=shard.batch,
        )
        return weighted_sum(terms.loss, shard.batch.mask, weights[list(shard.samples)], shard.batch.sample_index)

    report = check(loss_of)
    for result in report.results:
        if result.failure is not None:
            raise PluginError(
                f"{key} = {config.algorithm.loss_function!r} breaks a law of losses, {result.law.meaning!r}: "
                f"{result.failure.text}\n{result.failure.case}"
            )
    return [f"{key}: value and gradient are the same for every split over micro-batches, DP and CP"]


def _start_hook(key: str, config: RunConfig) -> list[str]:
    for rank in range(config.layout.world_size):
        run_start_hooks(config.hooks.before_model, config, rank=rank)
    return [f"{key}: was called for {config.layout.world_size} ranks"]


def _hook(key: str, config: RunConfig) -> list[str]:
    everything = RunConfig().rollout.model_copy(update={"drop_zero_variance": False})
    batches = assemble(_collect(RunConfig()), RunConfig(rollout=everything), iteration=1).rank_batches
    step = None if key == "hooks.before_log_probs" else 0
    paths = getattr(config.hooks, key.partition(".")[2])
    changed = [run_hooks(paths, key, batch, step=step) is not batch for batch in batches]
    return [f"{key}: took the batches of {len(batches)} ranks, {sum(changed)} of them got other columns"]


def _sink(key: str, config: RunConfig) -> list[str]:
    with tempfile.TemporaryDirectory() as directory:
        for sink in open_sinks(TrackingSection(sinks=config.tracking.sinks), directory):
            sink.write(0, {"rollout/reward": 0.5})
            sink.write(1, {"rollout/reward": float("nan"), "train/loss": 1.0})
            sink.close()
    return [f"{key}: took two steps, one with a figure that is not a number, and closed"]


def _source(key: str, config: RunConfig) -> list[str]:
    source = load_source(config.data, model_path=config.model.path)
    lines = (_drawing(source), _size(source), _splits(source), _retries(source, config))
    return [f"{key}: {line}" for line in lines]


def _drawing(source: DataSource) -> str:
    whole = source.problems(16, seed=3, start=5)
    if whole != source.problems(8, seed=3, start=5) + source.problems(8, seed=3, start=13):
        raise PluginError("problems(16, start=5) differs from its two halves: it must depend on seed and place alone.")
    if not all(problem.prompt_tokens for problem in whole):
        raise PluginError("a problem has no prompt tokens.")
    return "problems depend on seed and place alone"


def _size(source: DataSource) -> str:
    with calling("num_problems", error=PluginError):
        count = source.num_problems
    if count is None:
        return "there is no end of training problems"
    if not isinstance(count, int) or count < 1:
        raise PluginError(f"num_problems is {count!r}: the training problems of an epoch are needed, or None.")
    return f"an epoch has {count} training problems"


def _splits(source: DataSource) -> str:
    train = {problem.prompt for problem in source.problems(256, seed=0, start=0)}
    apart = {problem.prompt for problem in (*source.held_out(64), *source.validation(64))}
    if train & apart:
        raise PluginError(f"{sorted(train & apart)[0]!r} is drawn for training and is in another split too.")
    return f"{len(apart)} problems of the other splits are not drawn for training"


def _retries(source: DataSource, config: RunConfig) -> str:
    problem = source.problems(1, seed=0, start=0)[0]
    answer = source.tokenizer.encode(problem.answer)
    retry = source.retry_prompt(problem.prompt_tokens, answer)
    begin = (*problem.prompt_tokens, *answer)
    if retry[: len(begin)] != begin:
        raise PluginError("retry_prompt must begin with the prompt and the answer.")
    added = len(retry) - len(begin)
    if added > config.rollout.max_retry_tokens:
        raise PluginError(f"retry_prompt adds {added} tokens: set rollout.max_retry_tokens to at least {added}.")
    return f"a retry adds {added} tokens"
