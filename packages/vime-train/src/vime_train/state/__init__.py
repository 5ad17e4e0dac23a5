"""The run directory: what a run writes, and how it goes on after it was killed. Imports no torch."""

from vime_train.state._atomic import directory as whole_directory
from vime_train.state._checkpoints import AHEAD, BUFFER, Checkpoint, Checkpoints
from vime_train.state._errors import StateError
from vime_train.state._run_directory import RunDirectory, read_config

__all__ = [
    "AHEAD",
    "BUFFER",
    "Checkpoint",
    "Checkpoints",
    "RunDirectory",
    "StateError",
    "read_config",
    "whole_directory",
]
