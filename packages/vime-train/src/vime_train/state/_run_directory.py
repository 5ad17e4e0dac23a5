"""The directory of one run: its configuration, metrics, checkpoints, logs and reports.

Always true:

- a new run never writes into a directory that holds something;
- `config.json` is the configuration as the run used it, every default written out;
- nothing in it is changed while another process holds it;
- after `resume` the metrics hold exactly the records up to the checkpoint that the run goes on from.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path

from pydantic import ValidationError

from vime_train.config import RunConfig
from vime_train.state import _atomic
from vime_train.state._checkpoints import Checkpoint, Checkpoints
from vime_train.state._errors import StateError
from vime_train.state._lock import held


class RunDirectory:
    """Paths of one run; open it with `create` or `resume`."""

    def __init__(self, root: Path, *, keep: int) -> None:
        self.root = root
        self.checkpoints = Checkpoints(root / "checkpoints", keep=keep)

    @classmethod
    def create(cls, config: RunConfig) -> RunDirectory:
        """Make the directory `config.run_dir` and write the configuration.

        Raises:
            StateError: if the directory exists and is not empty, with what to do instead.
        """
        run = cls(cls.check_new(config), keep=config.checkpoint.keep)
        run.logs.mkdir(parents=True)
        _atomic.write_text(run.config_path, config.model_dump_json(indent=2) + "\n")
        return run

    @staticmethod
    def check_new(config: RunConfig) -> Path:
        """The absolute path of `config.run_dir`, where nothing may be yet; raises as `create` does."""
        root = Path(config.run_dir).absolute()
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            raise StateError(
                f"run directory {root} exists and holds {_describe(root)}: go on with "
                f"`vime-train resume {config.run_dir}`, choose another with `--set run_dir=...`, or remove it."
            )
        return root

    @classmethod
    def resume(cls, root: str | Path) -> tuple[RunDirectory, RunConfig, Checkpoint]:
        """Open a run that stopped: its configuration, and its newest checkpoint.

        Raises:
            StateError: if there is no run, it is still going on, or there is no checkpoint to go on from.
        """
        root = Path(root).absolute()
        path = root / "config.json"
        if not path.is_file():
            raise StateError(f"{root} is not a run directory (it has no config.json): name the directory of a run.")
        config = read_config(path).model_copy(update={"run_dir": str(root)})
        run = cls(root, keep=config.checkpoint.keep)
        with run.held():
            run.checkpoints.sweep()
            checkpoint = run.checkpoints.to_resume()
            if checkpoint is None:
                raise StateError(
                    f"{root} has no checkpoint to go on from: the run ended before its first one "
                    "(see `checkpoint.every`). Start it again in another directory."
                )
            run.logs.mkdir(exist_ok=True)
            run.truncate_metrics(after=checkpoint.iteration)
        return run, config, checkpoint

    def held(self) -> AbstractContextManager[None]:
        """Hold the directory for a block; raises `StateError` where another process does."""
        return held(self.root)

    @property
    def config_path(self) -> Path:
        """The resolved configuration."""
        return self.root / "config.json"

    @property
    def model(self) -> Path:
        """The model that the program made, where the configuration named none."""
        return self.root / "model"

    @property
    def export(self) -> Path:
        """The trained model as a Hugging Face directory."""
        return self.root / "export"

    @property
    def metrics(self) -> Path:
        """One JSON object per iteration."""
        return self.root / "metrics.jsonl"

    @property
    def logs(self) -> Path:
        """One file per process of the run."""
        return self.root / "logs"

    def profile(self, iteration: int) -> Path:
        """The profiles of one iteration, one file per trainer rank."""
        return self.root / "profile" / f"iteration-{iteration:06d}"

    def truncate_metrics(self, *, after: int) -> None:
        """Drop the records of iterations after `after`, and lines that a crash or a full disk cut off."""
        if not self.metrics.exists():
            return
        kept = []
        for line in self.metrics.read_text().splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            if record["step"] <= after:
                kept.append(line + "\n")
        _atomic.write_text(self.metrics, "".join(kept))


def read_config(path: Path) -> RunConfig:
    """The configuration that a run wrote.

    Raises:
        StateError: if it is damaged, or of a version with other keys.
    """
    try:
        return RunConfig.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        raise StateError(
            f"{path} cannot be read: it is damaged, or of a version of vime-train with other keys. {error}"
        ) from error


def _describe(root: Path) -> str:
    if not root.is_dir():
        return "a file of that name"
    latest = Checkpoints(root / "checkpoints", keep=1).latest()
    if latest is None:
        return f"{sum(1 for _ in root.iterdir())} entries"
    return f"a run (newest checkpoint after iteration {latest.iteration})"
