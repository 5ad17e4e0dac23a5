"""The base of every error whose message is all that a user needs: what, with which numbers, and what to do."""

from __future__ import annotations


class RunError(Exception):
    """A run could not start or go on. The command line prints the message (and its notes) without a traceback."""
