"""The agreed layout of one combination of schemas: which number goes where, on which rank.

Every rank builds the same plan from the same schemas; only what is picked differs. Packing and unpacking touch no name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, chain
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np

from vime_metrics._metric import Metric
from vime_metrics._numbers import Array
from vime_metrics._reduction._describe import REMEMBERED, Local, Shape
from vime_metrics._reduction._schema import NONFINITE_SUFFIX, Entry, Options
from vime_metrics._reduction._union import refuse_equal_names
from vime_metrics._reduction.blocks import Block, Mine, build_blocks

Parts: TypeAlias = list[Mine[Any]]


class Plan:
    """Blocks for the union of keys, seen from rank `rank`, whose own schema has the digest `digest`."""

    def __init__(self, entries: Mapping[str, Entry], digest: bytes, rank: int, ranks: int, options: Options) -> None:
        self.digest = digest
        self.rank = rank
        self.blocks = build_blocks(entries, ranks)
        self._pickers: dict[Shape, list[_Picker]] = {}
        self._firsts = _slices([block.first_size for block in self.blocks])
        self._peaks = _slices([block.peaks_size for block in self.blocks])
        self.first_size = sum(block.first_size for block in self.blocks)
        self.peaks_size = sum(block.peaks_size for block in self.blocks)
        self.has_second = any(block.has_second for block in self.blocks)
        names = list(chain.from_iterable(block.names for block in self.blocks))
        refuse_equal_names(names)
        self._order = np.array(sorted(range(len(names)), key=names.__getitem__), np.intp)
        self.names = sorted(names)
        self._spoiled = self._find_spoiled(entries) if options.nonfinite == "keep" else np.empty(0, np.intp)

    def pick(self, local: Local) -> Parts:
        """The metrics of this rank by block."""
        pickers = self._pickers.get(local.shape)
        if pickers is None:
            position = {key: at for at, key in enumerate(local.shape.keys)}
            pickers = [_Picker(block, position, self.rank) for block in self.blocks]
            if len(self._pickers) >= REMEMBERED:
                self._pickers.clear()
            self._pickers[local.shape] = pickers
        return [picker.mine(local.values) for picker in pickers]

    def write_first(self, mine: Parts, out: Array) -> None:
        """Write this rank's sums to `out`, zeros of shape [first_size]."""
        for block, part, where in zip(self.blocks, mine, self._firsts, strict=True):
            block.write_first(part, out[where])

    def peaks(self, mine: Parts) -> Array:
        """This rank's maxima, shape [peaks_size]."""
        out = np.full(self.peaks_size, -np.inf)
        for block, part, where in zip(self.blocks, mine, self._peaks, strict=True):
            block.write_peaks(part, out[where])
        return out

    def check(self, first: Array) -> None:
        """Raise `SchemaError` where the reduced counts contradict the declared copies."""
        for block, where in zip(self.blocks, self._firsts, strict=True):
            block.check(first[where])

    @np.errstate(over="ignore", invalid="ignore")
    def seconds(self, mine: Parts, first: Array, peaks: Array) -> list[Array]:
        """This rank's second sums, block by block."""
        return [
            block.second(part, first[at], peaks[peaks_at])
            for block, part, at, peaks_at in zip(self.blocks, mine, self._firsts, self._peaks, strict=True)
        ]

    @np.errstate(over="ignore", invalid="ignore")
    def finish(self, first: Array, peaks: Array, seconds: Sequence[Array]) -> dict[str, float]:
        """Name to number, names ascending, from the reduced buffers."""
        parts = zip(self.blocks, self._firsts, self._peaks, seconds, strict=True)
        numbers = [block.finish(first[at], peaks[peaks_at], second) for block, at, peaks_at, second in parts]
        values = np.concatenate([*numbers, np.empty(0)])[self._order]
        values[self._spoiled] = np.nan
        return dict(zip(self.names, values.tolist(), strict=True))

    def _find_spoiled(self, entries: Mapping[str, Entry]) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Positions of the numbers of every key that came with NaN or infinity."""
        keys = {key.removesuffix(NONFINITE_SUFFIX) for key in entries if key.endswith(NONFINITE_SUFFIX)}
        owners = {name: key for block in self.blocks for name, key in _owners(block)}
        return np.array([at for at, name in enumerate(self.names) if owners[name] in keys], np.intp)


class _Picker:
    """Takes the metrics of one block out of the values of a step, given where they stand in it."""

    def __init__(self, block: Block[Any], position: Mapping[str, int], rank: int) -> None:
        held = [at for at, key in enumerate(block.keys) if key in position]
        self._rank = rank
        self._at = slice(None) if len(held) == len(block.keys) else np.array(held, np.intp)
        self._take = _taker([position[block.keys[at]] for at in held])

    def mine(self, values: tuple[Metric, ...]) -> Mine[Any]:
        return Mine(self._take(values), self._at, self._rank)


def _taker(positions: Sequence[int]) -> Callable[[tuple[Metric, ...]], Sequence[Metric]]:
    """Picks `positions` of a tuple: one slice where they follow each other, which is the usual case."""
    if not positions:
        return itemgetter(slice(0))
    first, last = positions[0], positions[-1]
    if list(positions) == list(range(first, last + 1)):
        return itemgetter(slice(first, last + 1))
    return itemgetter(*positions)


def _slices(sizes: Sequence[int]) -> list[slice]:
    stops = list(accumulate(sizes))
    return [slice(stop - size, stop) for size, stop in zip(sizes, stops, strict=True)]


def _owners(block: Block[Any]) -> list[tuple[str, str]]:
    """Each reported name with the key it belongs to."""
    if len(block.keys) == 1:
        return [(name, block.keys[0]) for name in block.names]
    return list(zip(block.names, block.keys, strict=True))
