"""`vime-train plan`: the whole arithmetic of a run, in a second and without torch.

Always true: it plans with the planner and the settings that the run would use; lengths are made up, unless given.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from vime_train.cli._config import with_source
from vime_train.cli._predict import predict
from vime_train.config import ConfigError, Machine, ModelShape, launch_problems, load_config
from vime_train.rollout import plan_lengths, step_sizes

if TYPE_CHECKING:
    import argparse

    from vime_schedule import Schedule
    from vime_train.config import RunConfig


def plan(arguments: argparse.Namespace) -> int:
    """Print the batch arithmetic and a plan; the exit code is 2 when the run would be refused."""
    config = load_config(arguments.config, arguments.overrides)
    if arguments.show_config:
        print(config.model_dump_json(indent=2))
        return 0
    config, vocab_size = with_source(config)
    shape = ModelShape.of(config.model, vocab_size=vocab_size)
    lengths, origin = _lengths(arguments.lengths, config)
    print("\n".join(_arithmetic(config)))
    problems = launch_problems(config, machine=Machine.here(), shape=shape)
    if problems:
        raise ConfigError("this run would be refused:\n" + "\n".join(problems))
    schedule = plan_lengths(lengths, config, global_batch_sizes=_sizes(len(lengths), config))
    print("\n".join([*_figures(schedule, origin), *predict(config, schedule, tflops=arguments.tflops)]))
    if arguments.html:
        _write_page(schedule, Path(arguments.html))
    return 0


def _sizes(num_rollouts: int, config: RunConfig) -> list[int]:
    return step_sizes(num_rollouts, -(-num_rollouts // config.train.global_batch_size))


def _lengths(file: str | None, config: RunConfig) -> tuple[list[int], str]:
    """Tokens per sample and a word on where they come from; every sample counts as a rollout of its own."""
    if file is None:
        return _made_up(config), "made-up lengths (log-normal, cut at the longest possible sample)"
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--lengths {file}: cannot be read: {error}.") from error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for number, line in enumerate(lines, start=1):
        if not line.isdigit() or int(line) == 0:
            raise ConfigError(f"--lengths {file}:{number}: {line!r} is not a number of tokens.")
    if not lines:
        raise ConfigError(f"--lengths {file}: there is no number in it.")
    return [int(line) for line in lines], "lengths of the input" if file == "-" else f"lengths of {file}"


def _made_up(config: RunConfig) -> list[int]:
    rng = random.Random(config.seed)
    prompt, longest = config.data.max_prompt_tokens // 2, config.data.max_prompt_tokens + config.rollout.max_new_tokens
    middle = config.rollout.max_new_tokens / 4
    drawn = (prompt + 1 + int(middle * rng.lognormvariate(0.0, 1.0)) for _ in range(config.rollouts_per_iteration))
    return [min(longest, length) for length in drawn]


def _arithmetic(config: RunConfig) -> list[str]:
    layout, rollout, rollouts = config.layout, config.rollout, config.rollouts_per_iteration
    sizes = _sizes(rollouts, config)
    experts = f", ep {layout.ep}" if layout.ep > 1 else ""
    return [
        f"{config.name}: {_length(config)} after {config.supervised.steps} supervised steps",
        f"  rollouts    {rollout.prompts_per_iteration} prompts x {rollout.rollouts_per_prompt} = {rollouts} per "
        f"iteration, up to {rollout.max_attempts} samples each",
        f"  steps       {len(sizes)} optimizer steps per iteration, of {max(sizes)} rollouts",
        f"  layout      dp {layout.dp} x cp {layout.cp} x tp {layout.tp} x pp {layout.pp} (vpp {layout.vpp}{experts}) "
        f"= {layout.world_size} trainer ranks; engines: {config.engines_in_all}",
        f"  lengths     at most {config.max_sample_tokens} tokens per sample, "
        f"{config.batching.max_tokens_per_gpu} per GPU and micro-batch",
    ]


def _length(config: RunConfig) -> str:
    epochs = config.train.epochs
    return f"{config.train.iterations} iterations" if epochs is None else f"{epochs} epochs of the data source"


def _figures(schedule: Schedule, origin: str) -> list[str]:
    total = schedule.report().total
    micro_batches = ", ".join(str(step.num_micro_batches) for step in schedule.steps)
    return [
        f"plan of one iteration, {origin}",
        f"  samples     {total.samples}, {sum(schedule.total_lengths)} tokens",
        f"  micro-batches per rank and step   {micro_batches}",
        f"  imbalance   {total.imbalance:.4f} per step, {total.lockstep:.4f} in lockstep (1 is ideal)",
        f"  fill        {total.fill_fraction:.1%} of the budget, {total.padding_fraction:.1%} padding, "
        f"{total.fillers} fillers",
        f"  pipeline    {total.bubble_fraction:.1%} bubble",
    ]


def _write_page(schedule: Schedule, page: Path) -> None:
    from vime_train.report import write_plan_page

    write_plan_page(schedule.to_json(), page)
    print(f"  page        {page}")
