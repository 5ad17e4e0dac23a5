"""The checkpoints of a run.

Always true:

- a checkpoint is whole or absent: it is written aside and renamed; one that lost something later is told by the sizes
  of its files, and is never gone on from;
- it says after which iteration it was taken; iteration 0 is the state before the first rollout;
- writing one more leaves the newest `keep`; the one just written is never the one that goes.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from vime_train._files import writing
from vime_train.state import _atomic, _manifest
from vime_train.state._errors import DamagedRecordError, StateError

_NAME = re.compile(r"iteration-(\d+)")
_RECORD = "checkpoint.json"
BUFFER = "buffer"
"""Beside the trainers' directory: the groups that wait for a later iteration."""
AHEAD = "ahead"
"""Beside it too: the rollouts of the next iteration, where they were generated ahead."""
_FORMAT = 2


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
    files: dict[str, int] = field(default_factory=dict, repr=False, compare=False)
    """Every file with its bytes, as they were when it was written."""

    @property
    def trainer_path(self) -> Path:
        """What the trainers wrote: weights, optimizer state, random numbers."""
        return self.path / "trainer"

    @property
    def buffer_path(self) -> Path:
        """The rollouts that waited for a later iteration, where the run keeps any."""
        return self.path / BUFFER

    @property
    def ahead_path(self) -> Path:
        """The rollouts of the next iteration, where they were generated ahead."""
        return self.path / AHEAD

    def damage(self) -> str | None:
        """The first file that is missing or not as long as it was written, in words; None if all are there."""
        return _manifest.damage(self.path, self.files)


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

        What belongs to the checkpoint besides goes beside that directory, as `BUFFER` and `AHEAD`.
        """
        final = self._root / f"iteration-{iteration:06d}"
        checkpoint = Checkpoint(
            path=final,
            iteration=iteration,
            weight_version=weight_version,
            optimizer_steps=optimizer_steps,
            data=data,
        )
        with _atomic.directory(final) as aside:
            trainer = aside / checkpoint.trainer_path.name
            trainer.mkdir()
            yield trainer
            fields = {**asdict(checkpoint), "files": _manifest.sizes(aside)}
            record = {"format": _FORMAT, **{k: v for k, v in fields.items() if k != "path"}}
            with writing(final / _RECORD):
                (aside / _RECORD).write_text(json.dumps(record, indent=2) + "\n")
        self._prune(written=iteration)

    def list(self) -> list[Checkpoint]:
        """The whole checkpoints, oldest first.

        Raises:
            StateError: if a record cannot be read, with its path.
        """
        return sorted((_read(path) for path in self._paths()), key=lambda checkpoint: checkpoint.iteration)

    def latest(self) -> Checkpoint | None:
        """The newest checkpoint, if there is one."""
        found = self.list()
        return found[-1] if found else None

    def to_resume(self) -> Checkpoint | None:
        """The newest checkpoint, if there is one and it is whole.

        Raises:
            StateError: if it is damaged: which file, how, and what to remove to go on from which older one.
        """
        paths = sorted(self._paths(), key=_iteration_of, reverse=True)
        if not paths:
            return None
        problem = _damage(paths[0])
        if problem is None:
            return _read(paths[0])
        whole = [_iteration_of(path) for path in paths[1:] if _damage(path) is None]
        remedy = (
            f"remove {paths[0]} to go on from iteration {whole[0]}, which is whole."
            if whole
            else "no older checkpoint is whole: start the run again in another directory."
        )
        raise StateError(f"{problem}: the checkpoint was damaged after it was written; {remedy}")

    def _prune(self, *, written: int) -> None:
        others = [found for found in self.list() if found.iteration != written]
        surplus = max(0, len(others) - (self._keep - 1))
        for old in others[:surplus]:
            shutil.rmtree(old.path)

    def sweep(self) -> None:
        """Clear up after a killed run: remove what it had begun to write."""
        _atomic.recover(self._root)

    def _paths(self) -> Iterator[Path]:
        if self._root.is_dir():
            yield from (path for path in self._root.iterdir() if _NAME.fullmatch(path.name))


def _iteration_of(path: Path) -> int:
    return int(path.name.rpartition("-")[2])


def _damage(path: Path) -> str | None:
    """What is wrong with a checkpoint; None if it is whole."""
    try:
        return _read(path).damage()
    except DamagedRecordError as error:
        return f"{error.record} cannot be read ({error.cause!r})"


def _read(path: Path) -> Checkpoint:
    record = path / _RECORD
    try:
        fields = json.loads(record.read_text(encoding="utf-8"))
        written_as = fields.pop("format")
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise DamagedRecordError(record, error) from error
    if written_as != _FORMAT:
        raise StateError(f"{record} has format {written_as}, not {_FORMAT}: resume with the version that wrote it.")
    try:
        return Checkpoint(path=path, **fields)
    except TypeError as error:
        raise DamagedRecordError(record, error) from error
