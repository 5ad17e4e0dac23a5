"""Moving a frozen dataclass of tensors to another device."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

import torch

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


def move_tensors(value: T, device: torch.device | str, *, non_blocking: bool) -> T:
    """A copy of ``value`` whose tensors are on ``device``."""
    moved: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        content = getattr(value, field.name)
        if isinstance(content, torch.Tensor):
            moved[field.name] = content.to(device, non_blocking=non_blocking)
    return dataclasses.replace(value, **moved)
