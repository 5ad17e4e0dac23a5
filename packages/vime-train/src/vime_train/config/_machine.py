"""What this machine has, found without importing torch: cores, memory, GPUs, and which packages are missing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

NEEDED_MODULES = {
    "torch": 'python -m pip install "torch>=2.5"',
    "ray": 'python -m pip install "ray>=2.40"',
    "megatron": 'python -m pip install "megatron-core>=0.16,<0.18"',
    "vllm": 'python -m pip install "vime-train[cpu]" (without a GPU) or "vime-train[gpu]"',
    "transformers": 'python -m pip install "transformers>=4.56"',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Cores that this process may use, memory in GiB, GPUs that it may use, and modules that are not installed."""

    cores: int
    memory_gib: float
    gpus: int
    missing_modules: tuple[str, ...] = ()

    @classmethod
    def here(cls) -> Machine:
        """This machine."""
        return cls(
            cores=len(os.sched_getaffinity(0)),
            memory_gib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
            gpus=_gpus(),
            missing_modules=tuple(name for name in NEEDED_MODULES if find_spec(name) is None),
        )


def _gpus() -> int:
    present = sum(path.name[len("nvidia") :].isdigit() for path in Path("/dev").glob("nvidia*"))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return present
    return min(present, len([device for device in visible.split(",") if device.strip() not in ("", "-1")]))
