"""SIGTERM ends a run as Ctrl-C does: by an exception in the main thread, so that all is closed on the way out."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from vime_train._errors import Terminated


@contextmanager
def terminated_by_exception() -> Iterator[None]:
    """Turn SIGTERM into `Terminated` while the block runs. Does nothing outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handler(signum: int, frame: FrameType | None) -> None:
        raise Terminated(f"signal {signum}")

    before = signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore Ctrl-C and SIGTERM while the block runs: a second Ctrl-C must not stop the cleaning up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
