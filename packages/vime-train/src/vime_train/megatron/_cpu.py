"""Megatron-core without CUDA: the one shim, entered in one place (`device_scope`), and only where torch sees no GPU.

Megatron-core asks for CUDA in three ways that have a plain meaning on a CPU: factories with `device="cuda"`, `.cuda()`
and `.to("cuda")`, and checks that a tensor's type is `torch.cuda.FloatTensor`. Inside the scope the first two answer
with a CPU tensor, and `tensor.type()` answers with the CUDA name of the same type. Streams and events, which layers of
experts use, do nothing: what is computed on a CPU is there when its function returns. Nothing outside the scope is
changed.
"""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


@contextlib.contextmanager
def device_scope() -> Iterator[None]:
    """Run Megatron calls in here: as they are with CUDA, through the shim without. Scopes may be nested."""
    with _quiet():
        if torch.cuda.is_available():
            yield
            return
        real = {name: getattr(torch.cuda, name) for name in _ON_CPU}
        for name, function in _ON_CPU.items():
            setattr(torch.cuda, name, function)
        try:
            with _CudaOnCpu():
                yield
        finally:
            for name, function in real.items():
                setattr(torch.cuda, name, function)


@contextlib.contextmanager
def import_scope() -> Iterator[None]:
    """Import Megatron in here.

    Without CUDA its decorators for `torch.compile` leave functions as they are, since compiling a few elementwise
    functions on a CPU costs seconds and a C++ compiler; and its warnings about itself are left out.
    """
    if torch.cuda.is_available():
        yield
        return
    real = torch.compile
    torch.compile = _keep  # type: ignore[assignment]
    try:
        with _quiet():
            yield
    finally:
        torch.compile = real


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leave out Megatron's warnings about itself: its deprecations and missing libraries are not ours to act on."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"megatron\.")
        warnings.filterwarnings("ignore", module=__name__)  # the shim's frames stand between Megatron and torch
        warnings.filterwarnings(
            "ignore", category=FutureWarning, message="`torch.distributed"
        )  # names that Megatron calls
        yield


def _keep(function: Callable[..., Any] | None = None, **options: object) -> Any:
    return function if function is not None else lambda decorated: decorated


def _current_device() -> torch.device:
    return torch.device("cpu")


def _synchronize(device: object = None) -> None:
    """Wait for nothing: a CPU tensor is ready when its function returns."""


class _Stream:
    """A stream, and the event that it records, of work that is done at once."""

    def wait_stream(self, stream: _Stream) -> None:
        """Wait for nothing."""

    def record_event(self) -> _Stream:
        """There is nothing to wait for later either."""
        return self

    def synchronize(self) -> None:
        """Wait for nothing."""


_STREAM = _Stream()
_ON_CPU: Mapping[str, Callable[..., Any]] = {
    "current_device": _current_device,
    "synchronize": _synchronize,
    "Stream": lambda: _STREAM,
    "current_stream": lambda device=None: _STREAM,
    "stream": contextlib.nullcontext,
}
"""What stands in for functions of `torch.cuda` inside the scope."""


def _is_cuda(device: object) -> bool:
    return isinstance(device, (str, torch.device)) and torch.device(device).type == "cuda"


class _CudaOnCpu(TorchFunctionMode):
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.type and len(args) == 1 and not kwargs:
            name: str = func(*args)
            return name if name.startswith("torch.cuda.") else name.replace("torch.", "torch.cuda.", 1)
        if func is torch.Tensor.to and len(args) > 1 and _is_cuda(args[1]):
            args = (args[0], "cpu", *args[2:])
        if kwargs and _is_cuda(kwargs.get("device")):
            kwargs = {**kwargs, "device": "cpu"}
        return func(*args, **(kwargs or {}))
