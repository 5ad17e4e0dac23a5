"""Launch checks of what a run reads from disk besides its data: saved rollouts, and the weights of its models."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vime_train.config._run_config import RunConfig

_ROLLOUT_FILES = ("rollouts.jsonl", "columns.safetensors")


def saved_problems(config: RunConfig) -> Iterator[str]:
    """One sentence per file that is missing or cut off."""
    yield from _rollouts(config)
    algorithm = config.algorithm
    for key, path in (
        ("model.path", config.model.path),
        ("algorithm.kl.reference", algorithm.kl.reference),
        ("algorithm.distillation.teacher", algorithm.distillation.teacher),
    ):
        if path is not None:
            yield from _weights(key, Path(path))


def _rollouts(config: RunConfig) -> Iterator[str]:
    given = config.debug.load_rollouts
    if given is None or config.train.epochs is not None:
        return
    for iteration in range(1, config.train.iterations + 1):
        for name in _ROLLOUT_FILES:
            path = Path(given, f"iteration-{iteration:06d}", name)
            if not path.is_file():
                enough = f" Set train.iterations = {iteration - 1}." if iteration > 1 else ""
                yield (
                    f"debug.load_rollouts = {given!r}: there is no {path}; the rollouts of iterations 1 to "
                    f"train.iterations = {config.train.iterations} are needed, as debug.save_rollouts writes "
                    f"them.{enough}"
                )
                return


def _weights(key: str, directory: Path) -> Iterator[str]:
    for file in sorted(directory.glob("*.safetensors")):
        problem = safetensors_damage(file)
        if problem is not None:
            yield f"{key} = {str(directory)!r}: {file} {problem}; copy or convert it again."


def safetensors_damage(file: Path) -> str | None:
    """What is wrong with a safetensors file: its header tells how long it has to be. None if it is whole."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        begin = stream.read(8)
        length = struct.unpack("<Q", begin)[0] if len(begin) == 8 else 0
        if not 0 < length <= size - 8:
            return f"has {size} bytes and is cut off in its header"
        try:
            header = json.loads(stream.read(length))
            ends = [one["data_offsets"][1] for name, one in header.items() if name != "__metadata__"]
        except (ValueError, TypeError, KeyError, AttributeError):
            return "has a header that cannot be read: it is damaged"
    needed = 8 + length + max(ends, default=0)
    return None if needed == size else f"has {size} of {needed} bytes: it is cut off or damaged"
