"""Launch checks of what a run reads from disk besides its data: saved rollouts, and the weights of its models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from vime_train.config._safetensors import damage

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
        problem = damage(file)
        if problem is not None:
            yield f"{key} = {str(directory)!r}: {file} {problem}; copy or convert it again."
