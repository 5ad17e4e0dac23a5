"""What a run would take: memory of a trainer rank and of an engine, and arithmetic per iteration.

Always true: parameters are counted from the model's own weight files, FLOPs by `vime_schedule.FlopsCost`; every item
says what it is, and the seconds on what they rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vime_schedule import FlopsCost, ScheduleError
from vime_train.cli._memory import Item, engine_memory, total, trainer_memory
from vime_train.config import stored_shapes
from vime_train.data import hf_config, load_source, weight_shapes

if TYPE_CHECKING:
    from vime_schedule import Schedule
    from vime_train.config import RunConfig

PASSES = 3
"""Forward, and backward at twice its cost."""


def predict(config: RunConfig, schedule: Schedule, *, tflops: float | None) -> list[str]:
    """Lines about memory and arithmetic; without a model's files, none about them."""
    weights, model = _model(config)
    lines = [*_memory(config, weights, model, schedule)] if weights else []
    try:
        cost = FlopsCost.from_hf_config(model)
    except ScheduleError as error:
        return [*lines, f"arithmetic not counted: {error}"]
    slowest = PASSES * sum(_slowest_rank(schedule, step, cost) for step in range(len(schedule.steps)))
    share = slowest / (config.layout.cp * config.layout.tp * config.layout.pp)
    bubble = schedule.report().total.bubble_fraction if config.layout.pp > 1 else 0.0
    return [*lines, *_arithmetic(share, bubble, tflops)]


def _memory(
    config: RunConfig, weights: Mapping[str, tuple[int, ...]], model: Mapping[str, Any], schedule: Schedule
) -> Iterator[str]:
    teacher = config.algorithm.distillation.teacher
    shapes = None if teacher is None else stored_shapes(Path(teacher))
    yield f"memory of the trainer rank that takes most, {sum(map(prod, weights.values())):,} parameters in all"
    yield from _table(trainer_memory(config, weights, model, schedule, teacher=shapes))
    if config.on_gpus:
        yield "memory of an engine: the share of a GPU that vllm.gpu_memory_utilization says"
    else:
        yield "memory of an engine"
        yield from _table(engine_memory(config, weights))


def _table(items: Sequence[Item]) -> Iterator[str]:
    yield from (f"  {item.name:<13}{_bytes(item.count):>11}   {item.meaning}" for item in items)
    yield f"  {'together':<13}{_bytes(total(items)):>11}   predicted; docs/memory.md has measured peaks beside it"


def _arithmetic(flops: float, bubble: float, tflops: float | None) -> Iterator[str]:
    yield "arithmetic of one iteration on the busiest rank"
    yield f"  training     {flops / 1e12:.3g} TFLOP: {PASSES} x the forward pass of its samples, by the model's sizes"
    if tflops is not None:
        seconds = flops / tflops / 1e12 / (1 - bubble)
        yield (
            f"  time         {seconds:.3g} s at the {tflops:g} TFLOP/s that were given and {bubble:.1%} bubble; "
            "without communication, scoring passes and generation"
        )


def _model(config: RunConfig) -> tuple[dict[str, tuple[int, ...]], dict[str, Any]]:
    """Shapes of the weights, and the content of `config.json`."""
    if config.model.path is None:
        tokenizer = load_source(config.data).tokenizer
        return weight_shapes(config.model, tokenizer.vocab_size), hf_config(config.model, tokenizer)
    root = Path(config.model.path)
    return stored_shapes(root), json.loads((root / "config.json").read_text(encoding="utf-8"))


def _slowest_rank(schedule: Schedule, step: int, cost: FlopsCost) -> float:
    lengths = schedule.total_lengths
    return max(
        sum(cost(lengths[position]) for micro_batch in rank for position in micro_batch)
        for rank in schedule.steps[step].micro_batches
    )


def _bytes(count: float) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 2**28 else f"{count / 2**20:.2f} MiB"
