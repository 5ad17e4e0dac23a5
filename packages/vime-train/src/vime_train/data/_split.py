"""Which problems are never trained on, decided by a hash of the prompt alone.

Always true: the same prompt is in the same split in every run, machine and version of the data.
"""

from __future__ import annotations

import hashlib
from typing import Literal

Split = Literal["train", "validation", "held_out"]


def split_of(prompt: str) -> Split:
    """A tenth of all prompts is held out, another tenth is for validation.

    >>> split_of("a7b1="), split_of("a7b1=")
    ('train', 'train')
    """
    bucket = hashlib.sha256(prompt.encode()).digest()[0]
    if bucket < 26:
        return "held_out"
    return "validation" if bucket < 52 else "train"
