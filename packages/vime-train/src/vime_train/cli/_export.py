"""`vime-train export`: the weights of a checkpoint, as any other program reads them.

Always true: the output is whole or absent.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from vime_train.config import ConfigError

if TYPE_CHECKING:
    import argparse


def export(arguments: argparse.Namespace) -> int:
    """Copy the Hugging Face directory of a checkpoint."""
    from vime_train.state import Checkpoints, StateError, whole_directory

    output = Path(arguments.output)
    if output.exists():
        raise ConfigError(f"{output} exists: name a directory that does not.")
    found = {one.iteration: one for one in Checkpoints(Path(arguments.run_dir) / "checkpoints", keep=1).list()}
    if not found:
        raise ConfigError(f"{arguments.run_dir} holds no checkpoint: name the directory of a run.")
    iteration = max(found) if arguments.iteration is None else arguments.iteration
    if iteration not in found:
        raise ConfigError(f"there is no checkpoint of iteration {iteration}: there are {', '.join(map(str, found))}.")
    damage = found[iteration].damage()
    if damage is not None:
        raise StateError(f"{damage}: the checkpoint is damaged; name another of {', '.join(map(str, found))}.")
    with whole_directory(output) as aside:
        shutil.copytree(found[iteration].trainer_path / "weights", aside, dirs_exist_ok=True)
    print(f"{output}: the weights after iteration {iteration}")
    return 0
