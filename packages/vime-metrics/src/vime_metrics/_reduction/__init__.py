"""Reducing metrics over the ranks of a group, whatever carries the bytes."""

from vime_metrics._reduction._agreement import GroupMemory
from vime_metrics._reduction._reduction import reduction
from vime_metrics._reduction._requests import AllGather, AllReduce, Broadcast, Buffer, Bytes, Request, Steps
from vime_metrics._reduction._schema import NonFinite, Options, Replicas
from vime_metrics._reduction._simulated import SimulatedWorld, require_rank

__all__ = [
    "AllGather",
    "AllReduce",
    "Broadcast",
    "Buffer",
    "Bytes",
    "GroupMemory",
    "NonFinite",
    "Options",
    "Replicas",
    "Request",
    "SimulatedWorld",
    "Steps",
    "reduction",
    "require_rank",
]
