"""What a rank does in a block, on disk, for the viewers that PyTorch brings.

Always true: without a directory nothing is recorded and nothing is slowed down; a record exists only where the block
ended without an error; nothing here is ever read again by a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

_MEMORY_EVENTS = 200_000
"""The newest allocations and frees that a snapshot holds, with their stacks: about 100 MB."""


@contextmanager
def recorded(rank: int, *, trace_to: str | None = None, memory_to: str | None = None) -> Iterator[None]:
    """Record the block of a rank.

    Args:
        rank: names the files.
        trace_to: a directory for `trainer-RANK.trace.json.gz`, for Perfetto or `chrome://tracing`: the operators of the
            CPU and, where there is a GPU, its kernels.
        memory_to: a directory for `trainer-RANK.memory.pickle`, for pytorch.org/memory_viz: every allocation of CUDA
            memory with its stack. PyTorch's viewer takes no other format.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     with recorded(0, trace_to=directory):
        ...         _ = torch.ones(3) + 1
        ...     [path.name for path in Path(directory).iterdir()]
        ['trainer-0.trace.json.gz']
    """
    with ExitStack() as recording:
        if trace_to is not None:
            recording.enter_context(_trace(_file(trace_to, f"trainer-{rank}.trace.json.gz")))
        if memory_to is not None:
            recording.enter_context(_memory_history(_file(memory_to, f"trainer-{rank}.memory.pickle")))
        yield


def _file(directory: str, name: str) -> Path:
    Path(directory).mkdir(parents=True, exist_ok=True)
    return Path(directory, name)


@contextmanager
def _trace(path: Path) -> Iterator[None]:
    gpu = [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
    with profile(activities=[ProfilerActivity.CPU, *gpu]) as profiler:
        yield
    profiler.export_chrome_trace(str(path))


@contextmanager
def _memory_history(path: Path) -> Iterator[None]:
    """CUDA only: PyTorch keeps no history of a CPU's allocations, and the launch check refuses to ask for one."""
    torch.cuda.memory._record_memory_history(max_entries=_MEMORY_EVENTS)
    try:
        yield
        torch.cuda.memory._dump_snapshot(str(path))  # type: ignore[no-untyped-call]
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
