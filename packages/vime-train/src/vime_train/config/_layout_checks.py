"""Launch checks of the layout: does the model divide, does the machine hold it."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from vime_train.config._expert_checks import spread_problems
from vime_train.config._safetensors import stored_shapes

if TYPE_CHECKING:
    from vime_train.config._machine import Machine
    from vime_train.config._run_config import RunConfig
    from vime_train.config._shape import ModelShape

RANKS_PER_CORE = 8
TRAINER_GIB = 0.7
ENGINE_GIB = 2.3
"""Resident memory of one process on a CPU, small model: measured on the shipped demo."""
FP32_BYTES = 4


def layout_problems(config: RunConfig, shape: ModelShape, machine: Machine) -> Iterator[str]:
    """One sentence per way in which the layout cannot work."""
    yield from model_problems(config, shape)
    if config.cluster.address == "local":
        yield from _room_on_gpus(config, machine) if config.on_gpus else _room_on_cpu(config, machine)


def model_problems(config: RunConfig, shape: ModelShape) -> Iterator[str]:
    """One sentence per way in which a model cannot be cut by the layout."""
    yield from _tensor_parallel(config, shape)
    yield from _pipeline(config, shape)
    yield from spread_problems(config, shape)


def _tensor_parallel(config: RunConfig, shape: ModelShape) -> Iterator[str]:
    tp = config.layout.tp
    sizes = {
        "attention heads": shape.num_attention_heads,
        "key/value heads": shape.num_key_value_heads,
        "vocabulary entries": shape.vocab_size,
    }
    for name, size in sizes.items():
        if size is not None and size % tp:
            divisors = ", ".join(str(divisor) for divisor in range(1, tp + 1) if size % divisor == 0)
            yield (
                f"layout.tp = {tp}: the model's {size} {name} ({shape.origin}) are not divisible by {tp}; "
                f"use tp = {divisors.replace(', ', ' or ')}."
            )


def _pipeline(config: RunConfig, shape: ModelShape) -> Iterator[str]:
    layout, layers = config.layout, shape.num_hidden_layers
    stages = layout.pp * layout.vpp
    if layers % stages:
        yield (
            f"layout.pp = {layout.pp}, layout.vpp = {layout.vpp}: {layers} layers ({shape.origin}) cannot be cut into "
            f"pp * vpp = {stages} equal stages; choose pp * vpp among the divisors of {layers}."
        )
    if layout.vpp > 1 and layout.pp == 1:
        yield f"layout.vpp = {layout.vpp} with layout.pp = 1: virtual stages need a pipeline; use vpp = 1 or pp > 1."
    group = layout.microbatch_group_size_per_vp_stage
    if layout.vpp > 1 and group is not None and group < layout.pp:
        yield (
            f"layout.microbatch_group_size_per_vp_stage = {group} is smaller than layout.pp = {layout.pp}: "
            f"use at least {layout.pp}, or leave it out."
        )


def _room_on_gpus(config: RunConfig, machine: Machine) -> Iterator[str]:
    ranks, engines, share = config.layout.world_size, config.engine_processes, config.cluster.gpus_per_process
    if (ranks + engines) * share > machine.gpus:
        yield (
            f"dp * cp * tp * pp = {ranks} trainer ranks and engines of {engines} processes at "
            f"cluster.gpus_per_process = {share:g} need {(ranks + engines) * share:g} GPUs, this machine has "
            f"{machine.gpus}: lower the layout, engine.engines or engine.tensor_parallel_size, or give the address of "
            "a Ray cluster in cluster.address."
        )


def _room_on_cpu(config: RunConfig, machine: Machine) -> Iterator[str]:
    ranks = config.layout.world_size
    if ranks > RANKS_PER_CORE * machine.cores:
        yield (
            f"dp * cp * tp * pp = {ranks} trainer ranks on {machine.cores} cores: at most "
            f"{RANKS_PER_CORE * machine.cores} ({RANKS_PER_CORE} per core) finish in useful time; lower the layout."
        )
    memory = ranks * TRAINER_GIB + config.engine_processes * (ENGINE_GIB + config.engine.kv_cache_gib)
    memory += _weights_gib(config)
    if memory > machine.memory_gib:
        yield (
            f"{ranks} trainer ranks and {config.engines_in_all} engines need about {memory:.0f} GiB of memory, this "
            f"machine has {machine.memory_gib:.0f}: lower the layout, engine.engines or engine.kv_cache_gib."
        )


def _weights_gib(config: RunConfig) -> float:
    """Copies of the weights of `model.path` in fp32: trainers hold weights and gradients, Adam's two numbers once.

    TP does not cut experts, EP spreads them.
    """
    if config.model.path is None:
        return 0.0
    layout, numbers = config.layout, 0.0
    for name, shape in stored_shapes(Path(config.model.path)).items():
        replicas = layout.dp * layout.cp * (layout.tp / layout.ep if ".experts." in name else 1)
        numbers += prod(shape) * (2 * replicas + 2 + config.engine.engines)
    return numbers * FP32_BYTES / 2**30
