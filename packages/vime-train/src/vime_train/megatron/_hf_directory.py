"""A Hugging Face directory on disk: one file of weights or several with an index, and the files beside them.

Always true: a directory appears whole under its name or not at all; what stood there before stands until then.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import safe_open
from safetensors.torch import save_file

from vime_train._files import reading, writing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

SHARD_BYTES = 4 * 2**30
"""Weights of one safetensors file, at most (a larger single tensor has a file of its own)."""
_WEIGHT_SUFFIXES = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".gguf")


def write_directory(directory: Path, weights: Iterable[tuple[str, Tensor]], *, like: Path) -> None:
    """Write aside, then rename: readers see the old directory or the new one.

    Raises:
        OSError: a file could not be written; nothing is left of it.
    """
    aside = directory.with_name(f".{directory.name}.{os.getpid()}.partial")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir(parents=True)
        for source in sorted(like.iterdir()):
            if source.is_file() and not source.name.endswith(_WEIGHT_SUFFIXES):
                with writing(aside / source.name):
                    shutil.copyfile(source, aside / source.name)
        _write_weights(aside, weights)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    if directory.exists():
        old = directory.with_name(f".{directory.name}.{os.getpid()}.old")
        directory.rename(old)
        aside.rename(directory)
        shutil.rmtree(old)
    else:
        aside.rename(directory)


def _write_weights(directory: Path, weights: Iterable[tuple[str, Tensor]]) -> None:
    names: list[list[str]] = []
    waiting: dict[str, Tensor] = {}
    filled = total = 0
    for name, tensor in weights:
        if waiting and filled + tensor.nbytes > SHARD_BYTES:
            names.append(_write_part(directory, waiting, len(names) + 1))
            waiting, filled = {}, 0
        waiting[name] = tensor
        filled += tensor.nbytes
        total += tensor.nbytes
    names.append(_write_part(directory, waiting, len(names) + 1))
    _name_parts(directory, names, total)


def _write_part(directory: Path, tensors: dict[str, Tensor], number: int) -> list[str]:
    path = directory / f"part-{number}"
    with writing(path):
        save_file(tensors, path, metadata={"format": "pt"})
    return list(tensors)


def _name_parts(directory: Path, names: list[list[str]], total_bytes: int) -> None:
    if len(names) == 1:
        (directory / "part-1").rename(directory / "model.safetensors")
        return
    weight_map = {}
    for number, part in enumerate(names, start=1):
        file_name = f"model-{number:05d}-of-{len(names):05d}.safetensors"
        (directory / f"part-{number}").rename(directory / file_name)
        weight_map.update(dict.fromkeys(part, file_name))
    index = {"metadata": {"total_size": total_bytes}, "weight_map": weight_map}
    path = directory / "model.safetensors.index.json"
    with writing(path):
        path.write_text(json.dumps(index, indent=2), encoding="utf-8")


def files_by_tensor(directory: Path) -> dict[str, Path]:
    """In which file each tensor of a Hugging Face directory is.

    Raises:
        ValueError: there is no file with weights, or one is cut off or damaged.
    """
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise ValueError(
            f"files_by_tensor: {directory} holds no *.safetensors file: give a Hugging Face directory with weights"
        )
    found = {}
    for file in files:
        with reading(file), safe_open(file, framework="pt") as tensors:
            found.update(dict.fromkeys(tensors.keys(), file))
    return found


def read_tensor(files: Mapping[str, Path], name: str) -> Tensor:
    """One tensor, from the file that `files_by_tensor` found it in."""
    with reading(files[name]), safe_open(files[name], framework="pt") as tensors:
        tensor: Tensor = tensors.get_tensor(name)
        return tensor
