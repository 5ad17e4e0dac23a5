"""The shell of every actor: it holds one plain object and calls its methods.

Always true: an actor writes all its output, also that of native code and of a crash, to its own log file, whose first
line tells its process id; every line of ours tells the time, and the role and rank of the actor.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from vime_train._imports import uncollected

_log = logging.getLogger("vime_train")


class Host:
    """One object in a process of its own. Ray makes this class an actor; nothing here knows Ray."""

    def __init__(self, *, log: str, environment: Mapping[str, str]) -> None:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)
        faulthandler.enable(file=sys.stderr)
        # before the object's libraries are imported: most of them read these only once
        os.environ.update(environment)
        self._held: object = None
        self._busy_seconds = 0.0
        print(f"process {os.getpid()}", flush=True)
        logging.basicConfig(format=f"%(asctime)s {Path(log).stem} %(levelname)s %(message)s", datefmt="%H:%M:%S")
        _log.setLevel(logging.INFO)

    def process_id(self) -> int:
        """The actor's process."""
        return os.getpid()

    def busy_seconds(self) -> float:
        """How long the object has worked since it was made."""
        return self._busy_seconds

    def start(self, make: Callable[..., object], arguments: Mapping[str, object]) -> None:
        """Make the object."""
        with _traceback_in_log(), _timed("start"):
            self._held = make(**arguments)

    def call(self, method: str, *arguments: object, **named: object) -> object:
        """Call a method of the object."""
        with _traceback_in_log(), _timed(method) as took:
            result = getattr(self._held, method)(*arguments, **named)
        self._busy_seconds += took.seconds
        return result


@dataclass(slots=True)
class _Took:
    seconds: float = 0.0


@contextmanager
def _timed(what: str) -> Iterator[_Took]:
    """Log how long it took, and tell it after the block; what failed has its traceback instead."""
    took, began = _Took(), time.monotonic()
    yield took
    took.seconds = time.monotonic() - began
    _log.info("%s: %.2f s", what, took.seconds)


@contextmanager
def _traceback_in_log() -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(OSError):  # a log that has no room must not hide what is wrong
            traceback.print_exc()
        raise
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()


def make_trainer(**arguments: object) -> object:
    """A `vime_train.megatron.Trainer`, imported in the process that holds it."""
    with uncollected():
        from vime_train.megatron import Trainer

    return Trainer(**arguments)  # type: ignore[arg-type]


def make_engine(**arguments: object) -> object:
    """A `VllmEngine`, imported in the process that holds it."""
    with uncollected():
        from vime_train.engine._vllm import VllmEngine

    return VllmEngine(**arguments)  # type: ignore[arg-type]


def make_teacher(**arguments: object) -> object:
    """A `VllmTeacher`, imported in the process that holds it."""
    with uncollected():
        from vime_train.engine._vllm import VllmTeacher

    return VllmTeacher(**arguments)  # type: ignore[arg-type]


def log_path(logs: Path, name: str) -> Path:
    """The log of the actor called `name`."""
    return logs / f"{name}.log"


def logged_process(log: Path) -> int | None:
    """The process that last began to write a log; None before there is one."""
    if not log.is_file():
        return None
    found = re.findall(r"^process (\d+)$", log.read_text(errors="replace"), flags=re.MULTILINE)
    return int(found[-1]) if found else None
