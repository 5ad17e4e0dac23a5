"""`vime-train convert`: from a GGUF file or a model with a tied LM head, a directory that can be trained and served.

Always true: the output is whole or absent.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vime_train.config import ConfigError

if TYPE_CHECKING:
    import argparse


def convert(arguments: argparse.Namespace) -> int:
    """Read the source, write the directory aside, and rename it."""
    from vime_train.data import convert_model
    from vime_train.state import whole_directory

    output = Path(arguments.output)
    if output.exists():
        raise ConfigError(f"{output} exists: name a directory that does not.")
    with whole_directory(output) as aside:
        convert_model(arguments.source, aside)
    print(f"{output}: {arguments.source} in float32, with an LM head of its own")
    return 0
