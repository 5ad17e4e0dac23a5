"""Rollouts on disk, to train on them again or to look at them: arrays in safetensors, the rest in JSON Lines.

    rollouts.jsonl        one rollout per line: ids, reward, problem; lengths, status and weight version of its samples
    columns.safetensors   all samples one after the other: tokens, loss_mask, log_probs (float64: nothing is rounded),
                          and `columns.NAME` for each column of a user's own

Always true: what is loaded equals what was saved; a directory is written whole or not at all; one that is damaged is an
error that names the file and the place; nothing is unpickled.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from vime_train._errors import RunError
from vime_train._files import writing
from vime_train.rollout._samples import Problem, Rollout, Sample

if TYPE_CHECKING:
    import numpy.typing as npt

ROLLOUTS = "rollouts.jsonl"
COLUMNS = "columns.safetensors"
Columns = dict[str, "npt.NDArray[Any]"]


class DumpError(RunError, ValueError):
    """Saved rollouts that cannot be read: which file, which line, what is wrong."""


def save_rollouts(rollouts: Sequence[Rollout], directory: str | Path) -> None:
    """Write rollouts into a directory, which is replaced whole.

    Raises:
        OSError: a file could not be written; what stood there is untouched.
    """
    path = Path(directory)
    aside = path.with_name(f".{path.name}.writing")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        _write(rollouts, aside)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    shutil.rmtree(path, ignore_errors=True)
    os.replace(aside, path)


def _write(rollouts: Sequence[Rollout], directory: Path) -> None:
    directory.mkdir(parents=True)
    samples = [sample for rollout in rollouts for sample in rollout.samples]
    columns = {
        "tokens": _joined([sample.tokens for sample in samples], np.int64),
        "loss_mask": _joined([sample.loss_mask for sample in samples], np.uint8),
        "log_probs": _joined([sample.rollout_log_probs for sample in samples], np.float64),
    }
    for name in sorted({name for sample in samples for name in sample.columns}):
        own = [sample.columns[name] for sample in samples if name in sample.columns]
        columns[_own(name)] = _joined(own, np.float64)
    with writing(directory / COLUMNS):
        save_file(columns, directory / COLUMNS)
    lines = (json.dumps(_record(rollout), ensure_ascii=False) + "\n" for rollout in rollouts)
    with writing(directory / ROLLOUTS):
        (directory / ROLLOUTS).write_text("".join(lines), encoding="utf-8")


def load_rollouts(directory: str | Path) -> list[Rollout]:
    """Read the rollouts of a directory.

    Raises:
        DumpError: if a file is missing, cut off or damaged.
    """
    path = Path(directory)
    records = list(_records(path / ROLLOUTS))
    columns = _columns(path / COLUMNS)
    wanted = {
        "tokens": sum(sample["tokens"] for _, record in records for sample in record["samples"]),
        "loss_mask": sum(sample["response_length"] for _, record in records for sample in record["samples"]),
    }
    wanted["log_probs"] = wanted["loss_mask"]
    for _, record in records:
        for sample in record["samples"]:
            for name in sample["columns"]:
                wanted[_own(name)] = wanted.get(_own(name), 0) + sample["response_length"]
    for name, count in wanted.items():
        if name not in columns or columns[name].size != count:
            found = columns[name].size if name in columns else "none"
            raise DumpError(f"{path / COLUMNS}: column {name!r} has {found} entries, {ROLLOUTS} tells of {count}.")
    cursor = _Cursor(columns)
    return [_rollout(place, record, cursor) for place, record in records]


def _own(name: str) -> str:
    return f"columns.{name}"


class _Cursor:
    """Takes the samples' arrays one after the other."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._at = dict.fromkeys(columns, 0)

    def take(self, name: str, count: int) -> list[Any]:
        """The next `count` entries of a column."""
        start = self._at[name]
        self._at[name] = start + count
        taken: list[Any] = self._columns[name][start : start + count].tolist()
        return taken


def _joined(values: Sequence[Sequence[float]], dtype: type[np.generic]) -> npt.NDArray[Any]:
    return np.concatenate([np.asarray(one, dtype) for one in values]) if values else np.zeros(0, dtype)


def _record(rollout: Rollout) -> dict[str, object]:
    return {
        "rollout_id": rollout.rollout_id,
        "group_id": rollout.group_id,
        "reward": rollout.reward,
        "reward_parts": dict(rollout.reward_parts),
        "problem": asdict(rollout.problem),
        "samples": [
            {
                "tokens": len(sample.tokens),
                "response_length": sample.response_length,
                "reward": sample.reward,
                "status": sample.status,
                "weight_version": sample.weight_version,
                "columns": sorted(sample.columns),
                "weight_versions": [[version, len(list(run))] for version, run in groupby(sample.weight_versions)],
            }
            for sample in rollout.samples
        ],
    }


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if not path.is_file():
        raise DumpError(f"{path}: there is no such file: name a directory that save_rollouts wrote.")
    text = path.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else (), start=1):
        try:
            yield f"{path}:{number}", json.loads(line)
        except json.JSONDecodeError as error:
            raise DumpError(
                f"{path}:{number}: not valid JSON ({error.msg}): the file is cut off or damaged."
            ) from error


def _columns(path: Path) -> Columns:
    try:
        columns: Columns = load_file(path)
        return columns
    except (OSError, SafetensorError) as error:
        raise DumpError(f"{path}: cannot be read ({error}): it is missing, cut off or damaged.") from error


def _rollout(place: str, record: dict[str, Any], cursor: _Cursor) -> Rollout:
    try:
        problem = Problem(**record["problem"] | {"prompt_tokens": tuple(record["problem"]["prompt_tokens"])})
        samples = tuple(
            Sample(
                tokens=tuple(cursor.take("tokens", sample["tokens"])),
                response_length=sample["response_length"],
                loss_mask=tuple(cursor.take("loss_mask", sample["response_length"])),
                rollout_log_probs=tuple(cursor.take("log_probs", sample["response_length"])),
                rollout_id=record["rollout_id"],
                group_id=record["group_id"],
                reward=sample["reward"],
                status=sample["status"],
                weight_version=sample["weight_version"],
                columns={name: tuple(cursor.take(_own(name), sample["response_length"])) for name in sample["columns"]},
                weight_versions=tuple(v for version, count in sample["weight_versions"] for v in [version] * count),
            )
            for sample in record["samples"]
        )
        return Rollout(
            rollout_id=record["rollout_id"],
            group_id=record["group_id"],
            problem=problem,
            samples=samples,
            reward=record["reward"],
            reward_parts=record["reward_parts"],
        )
    except (KeyError, TypeError) as error:
        raise DumpError(f"{place}: {type(error).__name__} {error}: a field is missing or of another kind.") from error
