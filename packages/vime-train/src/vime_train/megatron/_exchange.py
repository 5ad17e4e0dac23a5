"""What one rank found out after a fault, told to all. Slow and small; nothing is pickled."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeVar

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from vime_train.megatron._groups import Groups

T = TypeVar("T", int, str)


def gather_json(value: list[T], groups: Groups) -> list[list[T]]:
    """Every rank's list, by rank, on every rank; collective. They travel as JSON."""
    text = json.dumps(value).encode()
    length = torch.tensor([len(text)], device=groups.device)
    lengths = [torch.zeros_like(length) for _ in range(groups.layout.world_size)]
    dist.all_gather(lengths, length)
    longest = int(max(lengths))
    mine = torch.frombuffer(bytearray(text.ljust(longest)), dtype=torch.uint8).to(groups.device)
    everyone = [torch.empty_like(mine) for _ in lengths]
    dist.all_gather(everyone, mine)
    return [json.loads(bytes(data.tolist())) for data in everyone]
