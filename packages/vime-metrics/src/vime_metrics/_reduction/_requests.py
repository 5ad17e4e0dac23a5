"""The collectives a reduction asks for.

A reduction is a generator that yields requests and is sent the replies; whoever drives it owns the communication.
The driver over a torch process group and the simulated world run the same generator, so there is one code path.

Only fp64 numbers and bytes of JSON are ever in a buffer: no pickle.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from vime_metrics._numbers import Array

Bytes: TypeAlias = NDArray[np.uint8]
Buffer: TypeAlias = NDArray[np.float64] | NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce:
    """Reply: `buffer`, shape [numbers], combined over ranks with `op`; needed on the rank `dst` only, or everywhere."""

    buffer: Array
    op: Literal["sum", "max"]
    dst: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AllGather:
    """Reply: the buffers of all ranks, shape [ranks, bytes]; every rank sends the same number of bytes."""

    buffer: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Broadcast:
    """Reply: the buffer, shape [bytes], of rank `src` of the group; other ranks send one of the same length."""

    buffer: Bytes
    src: int


Request: TypeAlias = AllReduce | AllGather | Broadcast
_T = TypeVar("_T")
Steps: TypeAlias = Generator[Request, Buffer, _T]


def summed(buffer: Array, dst: int | None = None) -> Steps[Array]:
    """The sum over ranks."""
    reply = yield AllReduce(buffer=buffer, op="sum", dst=dst)
    return _as_numbers(reply)


def largest(buffer: Array, dst: int | None = None) -> Steps[Array]:
    """The maximum over ranks."""
    reply = yield AllReduce(buffer=buffer, op="max", dst=dst)
    return _as_numbers(reply)


def gathered(data: bytes) -> Steps[list[bytes]]:
    """The data of every rank, all of one length."""
    reply = yield AllGather(buffer=np.frombuffer(data, np.uint8).copy())
    return [row.tobytes() for row in reply]


def broadcast(data: bytes, src: int) -> Steps[bytes]:
    """The data of rank `src`; the others give as many bytes of anything."""
    reply = yield Broadcast(buffer=np.frombuffer(data, np.uint8).copy(), src=src)
    return reply.tobytes()


def _as_numbers(reply: Buffer) -> Array:
    return reply.view(np.float64)
