"""Calls into a user's code: whatever it raises becomes an error that says which function, and what it was given.

Always true: an error of ours, an interrupt and an exit pass unchanged; the user's own error is the cause of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from vime_train._errors import RunError


class PluginCallError(RunError, RuntimeError):
    """A user's function that raised, or returned what it must not."""


class calling:  # noqa: N801  # a context manager reads as a verb
    """Name the function and its input in what it raises.

    >>> with calling("rollout.reward = 'my:reward'", lambda: "problem 'p1'"):
    ...     1 / 0
    Traceback (most recent call last):
        ...
    vime_train.plugins._calling.PluginCallError: rollout.reward = 'my:reward' raised ZeroDivisionError: ...
    """

    def __init__(
        self,
        name: str,
        given: Callable[[], str] | None = None,
        error: Callable[[str], RunError] = PluginCallError,
        *,
        unchanged: type[Exception] = RunError,
    ) -> None:
        self._name = name
        self._given = given
        self._error = error
        self._unchanged = (RunError, unchanged)

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, self._unchanged):
            given = f"; given {self._given()}" if self._given else ""
            message = f"{self._name} raised {type(error).__name__}: {error}{_place(trace)}{given}."
            raise self._error(message) from error


def _place(trace: TracebackType | None) -> str:
    """File and line at which the user's code raised."""
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f" (at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})"
