"""The command line `vime-train`. Importing it imports neither torch nor Ray."""

from vime_train.cli._main import main

__all__ = ["main"]
