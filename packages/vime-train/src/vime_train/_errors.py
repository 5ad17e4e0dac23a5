"""What every room may raise, and the command line knows."""

from __future__ import annotations


class RunError(Exception):
    """A run could not start or go on.

    The message is all that a user needs: what, with which numbers, and what to do. The command line prints it, and its
    notes, without a traceback.
    """


class Terminated(BaseException):
    """The process was asked to end (SIGTERM)."""
