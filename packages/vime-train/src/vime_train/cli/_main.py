"""`vime-train`: parse, run one command, answer with an exit code.

Always true: a mistake of the user is a message on the error stream and exit code 2; a run that could not go on, or a
file that could not be written or read, is a message and exit code 1; Ctrl-C is exit code 130, SIGTERM 143. No message
comes with a traceback.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

from vime_train._errors import RunError, Terminated
from vime_train.cli._parser import parse
from vime_train.config import ConfigError
from vime_train.plugins import PluginError

_ROOM = ": make room there, keep fewer checkpoints (checkpoint.keep), or use another disk."
_REMEDIES = {errno.ENOSPC: _ROOM, errno.EDQUOT: _ROOM, errno.EFBIG: _ROOM}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    arguments = parse(argv)
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # where users keep the modules that a configuration names
    try:
        return int(arguments.command(arguments))
    except (ConfigError, PluginError) as error:
        _tell(error)
        return 2
    except RunError as error:
        _tell(error)
        return 1
    except OSError as error:
        _tell(error, f"{error}{_REMEDIES.get(error.errno or 0, '.')}")
        return 1
    except KeyboardInterrupt as error:
        _tell(error, "interrupted.")
        return 130
    except Terminated as error:
        _tell(error, "asked to end (SIGTERM).")
        return 143


def _tell(error: BaseException, text: str | None = None) -> None:
    notes = getattr(error, "__notes__", [])
    print(f"vime-train: {text or error}", *notes, sep="\n", file=sys.stderr)
