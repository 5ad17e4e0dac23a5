"""What goes wrong with processes, told with the process, the cause, and the end of its log."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from vime_train._errors import RunError

Failure = Literal["died", "raised", "late"]


class ClusterError(RunError, RuntimeError):
    """The run's processes cannot be started or reached."""


class ActorError(ClusterError):
    """A process of the run died, raised or did not answer.

    Attributes:
        name: which one, as in `trainer-1`.
        how: "died": its process is gone; "raised": its code raised, with the cause as `__cause__`; "late": it did not
            answer in time.
    """

    def __init__(self, message: str, *, name: str, how: Failure) -> None:
        super().__init__(message)
        self.name = name
        self.how = how


def log_tail(path: Path, *, lines: int = 15) -> str:
    """The last lines of a log, indented, or a word that there are none."""
    if not path.is_file():
        return f"    (no log at {path})"
    text = path.read_text(errors="replace").splitlines()[-lines:]
    return "\n".join(f"    {line}" for line in text) or f"    ({path} is empty)"
