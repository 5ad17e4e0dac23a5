"""The checkpoints of a run.

Always true:

- a checkpoint is whole or absent: it is written aside and renamed;
- it says after which iteration it was taken; iteration 0 is the state before the first rollout;
- writing one more leaves the newest `keep`; the one just written is never the one that goes.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from vime_train.state import _atomic
from vime_train.state._errors import StateError

_NAME = re.compile(r"iteration-(\d+)")
_RECORD = "checkpoint.json"
BUFFER = "buffer"
"""Beside the trainers' directory: what the collector wrote."""
_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A whole checkpoint: where it lies and how far the run had come."""

    path: Path
    iteration: int
    """Iterations that were finished."""
    weight_version: int
    """The version that the trainers' weights had."""
    optimizer_steps: int
    """RL optimizer steps that were finished."""
    data: dict[str, int]
    """Where the data source stood."""

    @property
    def trainer_path(self) -> Path:
        """What the trainers wrote: weights, optimizer state, random numbers."""
        return self.path / "trainer"

    @property
    def buffer_path(self) -> Path:
        """The rollouts that waited for a later iteration, where the run keeps any."""
        return self.path / BUFFER


class Checkpoints:
    """The checkpoints below one directory, of which the newest `keep` stay.

    Example:
        >>> import tempfile, pathlib
        >>> checkpoints = Checkpoints(pathlib.Path(tempfile.mkdtemp()), keep=1)
        >>> for k in (1, 2):
        ...     with checkpoints.write(iteration=k, weight_version=k, optimizer_steps=4 * k, data={}) as path:
        ...         _ = (path / "weights").write_text("...")
        >>> [checkpoint.iteration for checkpoint in checkpoints.list()]
        [2]
    """

    def __init__(self, root: Path, *, keep: int) -> None:
        self._root = root
        self._keep = keep

    @contextmanager
    def write(
        self, *, iteration: int, weight_version: int, optimizer_steps: int, data: dict[str, int]
    ) -> Iterator[Path]:
        """Give a directory for the trainers to write into; the checkpoint exists when the block has ended.

        What belongs to the checkpoint besides goes beside that directory, as `BUFFER`.
        """
        final = self._root / f"iteration-{iteration:06d}"
        checkpoint = Checkpoint(
            path=final,
            iteration=iteration,
            weight_version=weight_version,
            optimizer_steps=optimizer_steps,
            data=data,
        )
        if final.exists():
            shutil.rmtree(final)
        with _atomic.directory(final) as aside:
            trainer = aside / checkpoint.trainer_path.name
            trainer.mkdir()
            yield trainer
            record = {"format": _FORMAT, **{k: v for k, v in asdict(checkpoint).items() if k != "path"}}
            (aside / _RECORD).write_text(json.dumps(record, indent=2) + "\n")
        self._prune(written=iteration)

    def list(self) -> list[Checkpoint]:
        """The whole checkpoints, oldest first.

        Raises:
            StateError: if a record cannot be read, with its path.
        """
        if not self._root.is_dir():
            return []
        found = [_read(path) for path in self._root.iterdir() if _NAME.fullmatch(path.name)]
        return sorted(found, key=lambda checkpoint: checkpoint.iteration)

    def latest(self) -> Checkpoint | None:
        """The newest whole checkpoint, if there is one."""
        found = self.list()
        return found[-1] if found else None

    def _prune(self, *, written: int) -> None:
        others = [found for found in self.list() if found.iteration != written]
        surplus = max(0, len(others) - (self._keep - 1))
        for old in others[:surplus]:
            shutil.rmtree(old.path)

    def sweep(self) -> None:
        """Remove what a killed run had begun to write."""
        if self._root.is_dir():
            for path in self._root.glob(_atomic.WRITING + "*"):
                shutil.rmtree(path)


def _read(path: Path) -> Checkpoint:
    record = path / _RECORD
    try:
        fields = json.loads(record.read_text())
        if fields.pop("format") != _FORMAT:
            raise StateError(f"{record} has another format than {_FORMAT}: resume with the version that wrote it.")
        return Checkpoint(path=path, **fields)
    except (OSError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise StateError(
            f"{record} cannot be read ({error!r}): it was changed by hand; remove {path} to go on from an older one."
        ) from error
