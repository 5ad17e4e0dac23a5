"""How each kind of metric travels."""

from vime_metrics._reduction.blocks._block import Block, Mine
from vime_metrics._reduction.blocks._build import build_blocks

__all__ = ["Block", "Mine", "build_blocks"]
