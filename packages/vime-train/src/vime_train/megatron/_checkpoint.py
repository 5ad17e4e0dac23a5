"""A trainer's state on disk: weights as a Hugging Face directory, and a pair of files per rank for the rest. No pickle.

    weights/                       the model, readable by anything that reads Hugging Face directories
    trainer-00000.safetensors      rank 0: optimizer state and random-number states
    trainer-00000.json             rank 0: layout, counters, the optimizer's scalars

Always true: loaded in the layout that saved it, the next step is bit for bit the step that would have followed; loaded
in another layout, the weights are exact and the optimizer begins anew.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from safetensors.torch import load_file, save_file

from vime_train._files import reading, writing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from megatron.core.optimizer import ChainedOptimizer
    from torch import Tensor

    from vime_train.megatron._groups import Groups

WEIGHTS = "weights"
Restored = Literal["exact", "weights"]
"""What a load brought back: everything, or the weights alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What a trainer has done so far: optimizer steps (skipped ones too), skipped steps, rollouts trained on."""

    steps: int = 0
    skipped: int = 0
    rollouts: int = 0


def save_state(directory: str, optimizer: ChainedOptimizer, counters: Counters, groups: Groups) -> None:
    """Write this rank's pair of files; the weights are written by `_hf_weights`.

    Raises:
        OSError: one of them could not be written.
    """
    tensors = dict(_optimizer_tensors(optimizer))
    tensors["rng.cpu"] = torch.get_rng_state()
    if groups.device.type == "cuda":
        tensors["rng.cuda"] = torch.cuda.get_rng_state()
    path = _path(directory, groups.rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path):
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    record = {
        "layout": groups.layout.model_dump(),
        "counters": asdict(counters),
        "param_groups": [_scalars(group) for group in _param_groups(optimizer)],
    }
    with writing(path.with_suffix(".json")):
        path.with_suffix(".json").write_text(json.dumps(record, indent=2), encoding="utf-8")


@torch.no_grad()
def load_state(directory: str, optimizer: ChainedOptimizer, groups: Groups) -> tuple[Counters, Restored]:
    """Read this rank's pair of files, if the layout is the one that wrote them; the counters in any case.

    Raises:
        ValueError: the directory holds no state of a trainer, or a file of it is cut off or damaged.
    """
    record = _record(directory, 0)
    counters = Counters(**record["counters"])
    if record["layout"] != groups.layout.model_dump():
        return counters, "weights"
    record = _record(directory, groups.rank)
    with reading(_path(directory, groups.rank)):
        tensors = load_file(_path(directory, groups.rank))
    for group, scalars in zip(_param_groups(optimizer), record["param_groups"], strict=True):
        group.update(scalars)
    for prefix, parameter, state in _parameter_states(optimizer):
        parameter.copy_(tensors[f"{prefix}.parameter"])
        state.clear()
        state.update(_state_of(prefix, tensors, parameter.device))
    torch.set_rng_state(tensors["rng.cpu"])
    if groups.device.type == "cuda":
        torch.cuda.set_rng_state(tensors["rng.cuda"])
    return counters, "exact"


def _record(directory: str, rank: int) -> dict[str, Any]:
    path = _path(directory, rank).with_suffix(".json")
    if not path.is_file():
        raise ValueError(f"load_state: {path} does not exist: give a directory that Trainer.save wrote")
    with reading(path):
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return record


def _path(directory: str, rank: int) -> Path:
    return Path(directory) / f"trainer-{rank:05d}.safetensors"


def _param_groups(optimizer: ChainedOptimizer) -> list[dict[str, Any]]:
    return [group for part in optimizer.chained_optimizers for group in part.optimizer.param_groups]


def _scalars(group: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in group.items() if isinstance(value, (bool, int, float))}


def _parameter_states(optimizer: ChainedOptimizer) -> Iterator[tuple[str, Tensor, dict[str, Any]]]:
    """Prefix, fp32 parameter shard and optimizer state, in an order that depends on the layout alone."""
    for part_number, part in enumerate(optimizer.chained_optimizers):
        inner = part.optimizer
        for group_number, group in enumerate(inner.param_groups):
            for number, parameter in enumerate(group["params"]):
                yield f"optimizer.{part_number}.{group_number}.{number}", parameter, inner.state[parameter]


def _optimizer_tensors(optimizer: ChainedOptimizer) -> Iterator[tuple[str, Tensor]]:
    for prefix, parameter, state in _parameter_states(optimizer):
        yield f"{prefix}.parameter", parameter
        for name, value in state.items():
            yield f"{prefix}.state.{name}", value


def _state_of(prefix: str, tensors: dict[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Optimizer state by name; the step count stays on the CPU, where torch's Adam keeps it."""
    start = f"{prefix}.state."
    state = {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
    return {name: tensor if tensor.ndim == 0 else tensor.to(device) for name, tensor in state.items()}
