"""What a run would take: memory for the model's states, and arithmetic per iteration.

Always true: parameters are counted from the model's own weight files, FLOPs by `vime_schedule.FlopsCost`; what is not
counted (activations, communication, generation) is not guessed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vime_schedule import FlopsCost, ScheduleError
from vime_train.data import hf_config, load_source, weight_shapes

if TYPE_CHECKING:
    from vime_schedule import Schedule
    from vime_train.config import RunConfig

FP32_BYTES = 4
MOMENTS = 2
"""Adam keeps two numbers per parameter, cut over the DP x CP ranks."""
PASSES = 3
"""Forward, and backward at twice its cost."""


def predict(config: RunConfig, schedule: Schedule, *, tflops: float | None) -> list[str]:
    """Lines about memory and arithmetic; without a model's files, none about them."""
    shapes, model = _model(config)
    lines = []
    if shapes:
        parameters = sum(prod(shape) for shape in shapes)
        lines.append(
            f"  memory      {_bytes(_states(parameters, config))} per rank for weights, gradients and Adam in fp32"
        )
        lines.append(f"  parameters  {parameters:,}")
    try:
        cost = FlopsCost.from_hf_config(model)
    except ScheduleError as error:
        return [*lines, f"  arithmetic  not counted: {error}"]
    slowest = PASSES * sum(_slowest_rank(schedule, step, cost) for step in range(len(schedule.steps)))
    share = slowest / (config.layout.cp * config.layout.tp * config.layout.pp)
    seconds = "" if tflops is None else f", {share / tflops / 1e12:.3g} s at {tflops:g} TFLOP/s"
    return [*lines, f"  arithmetic  {share / 1e12:.3g} TFLOP on the busiest rank per iteration{seconds}"]


def _model(config: RunConfig) -> tuple[list[tuple[int, ...]], dict[str, object]]:
    """Shapes of the weights, and the content of `config.json`."""
    if config.model.path is None:
        tokenizer = load_source(config.data).tokenizer
        return list(weight_shapes(config.model, tokenizer.vocab_size).values()), hf_config(config.model, tokenizer)
    root = Path(config.model.path)
    shapes = [shape for file in sorted(root.glob("*.safetensors")) for shape in _header_shapes(file)]
    return shapes, json.loads((root / "config.json").read_text(encoding="utf-8"))


def _header_shapes(file: Path) -> list[tuple[int, ...]]:
    """Shapes in the header of a safetensors file: 8 bytes of its length, then JSON."""
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        header: Mapping[str, Any] = json.loads(stream.read(length))
    return [tuple(entry["shape"]) for name, entry in header.items() if name != "__metadata__"]


def _states(parameters: int, config: RunConfig) -> float:
    layout = config.layout
    held = parameters / (layout.tp * layout.pp)
    return held * FP32_BYTES * (2 + MOMENTS / (layout.dp * layout.cp))


def _slowest_rank(schedule: Schedule, step: int, cost: FlopsCost) -> float:
    lengths = schedule.total_lengths
    return max(
        sum(cost(lengths[position]) for micro_batch in rank for position in micro_batch)
        for rank in schedule.steps[step].micro_batches
    )


def _bytes(count: float) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 2**28 else f"{count / 2**20:.2f} MiB"
