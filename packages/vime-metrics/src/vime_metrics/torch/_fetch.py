"""Reading many device scalars with one synchronisation."""

from __future__ import annotations

from collections.abc import Mapping

import torch


def fetch(scalars: Mapping[str, torch.Tensor | float]) -> dict[str, float]:
    """Python floats of tensors of one element each, by one copy per device however many there are.

    A metric accepts a device tensor as it is, but then waits for the device once per tensor.

    >>> fetch({"loss": torch.tensor(0.5), "tokens": torch.tensor(128), "lr": 3e-4})
    {'loss': 0.5, 'tokens': 128.0, 'lr': 0.0003}
    """
    found: dict[str, float] = {}
    by_device: dict[torch.device, list[str]] = {}
    for name, scalar in scalars.items():
        if isinstance(scalar, torch.Tensor):
            if scalar.numel() != 1:
                raise ValueError(f"{name!r} has shape {tuple(scalar.shape)}: give tensors of one element.")
            by_device.setdefault(scalar.device, []).append(name)
        else:
            found[name] = float(scalar)
    for names in by_device.values():
        tensors = [torch.as_tensor(scalars[name]).detach().reshape(1) for name in names]
        found |= zip(names, _to_host(tensors), strict=True)
    return {name: found[name] for name in scalars}


def _to_host(tensors: list[torch.Tensor]) -> list[float]:
    """fp64 on the device keeps integers above 2**24; a device without it gives its widest float."""
    wide = torch.float32 if tensors[0].device.type == "mps" else torch.float64
    values: list[float] = torch.cat([tensor.to(wide) for tensor in tensors]).cpu().tolist()
    return values
