"""From the agreed keys of all ranks to blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from vime_metrics._reduction._schema import Entry
from vime_metrics._reduction.blocks._block import Block
from vime_metrics._reduction.blocks._counts import HistogramBlock, TextCountsBlock
from vime_metrics._reduction.blocks._extremes import LastBlock, MaxBlock, MinBlock
from vime_metrics._reduction.blocks._moments import StdBlock
from vime_metrics._reduction.blocks._quantiles import QuantilesBlock
from vime_metrics._reduction.blocks._sums import CountBlock, MeanBlock, RateBlock, SumBlock

_COLUMNS: Final[dict[str, Callable[[tuple[str, ...], tuple[int, ...]], Block[Any]]]] = {
    "Count": CountBlock,
    "Last": LastBlock,
    "Max": MaxBlock,
    "Mean": MeanBlock,
    "Min": MinBlock,
    "Rate": RateBlock,
    "Sum": SumBlock,
}


def build_blocks(entries: Mapping[str, Entry], ranks: int) -> list[Block[Any]]:
    """Blocks for `entries`, their keys ascending: one per scalar kind, one per key that spans several numbers."""
    blocks: list[Block[Any]] = []
    for kind in sorted({entry.kind for entry in entries.values()}):
        keys = [key for key, entry in entries.items() if entry.kind == kind]
        blocks += _blocks_of(kind, keys, [entries[key] for key in keys], ranks)
    return blocks


def _blocks_of(kind: str, keys: Sequence[str], entries: Sequence[Entry], ranks: int) -> Sequence[Block[Any]]:
    names, copies = tuple(keys), tuple(entry.copies for entry in entries)
    match kind:
        case "Std":
            return [StdBlock(names, copies, tuple(entry.settings[0] == "unbiased" for entry in entries))]
        case "Histogram":
            return [HistogramBlock(key, e.copies, _floats(e)) for key, e in zip(keys, entries, strict=True)]
        case "Quantiles":
            return [QuantilesBlock(key, e.copies, _floats(e), ranks) for key, e in zip(keys, entries, strict=True)]
        case "TextCounts":
            texts = [tuple(map(str, entry.settings)) for entry in entries]
            return [TextCountsBlock(key, n, t) for key, n, t in zip(keys, copies, texts, strict=True)]
        case _:
            return [_COLUMNS[kind](names, copies)]


def _floats(entry: Entry) -> tuple[float, ...]:
    return tuple(map(float, entry.settings))
