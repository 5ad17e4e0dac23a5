"""Large libraries are imported without garbage collections.

Always true: after the block collections are on or off as before, and pass over what was there at its end.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Import in this block what makes a million objects that stay, such as vLLM.

    Collections would look at all of them again and again meanwhile, a third of vLLM's start, and later in every step.

    Example:
        >>> with uncollected():
        ...     import json
        >>> gc.isenabled()
        True
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collecting:
            gc.enable()
