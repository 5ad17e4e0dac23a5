"""Start Ray on this machine, or join a cluster.

Always true of a local start: all of Ray's listeners are on loopback, its files lie in the run's scratch directory,
and it holds exactly the processes that the run asks for. No port is named: the kernel gives free ones, so that another
run, or another Ray, on the machine takes nothing away. Joining takes no longer than its limit, whatever listens there.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

from vime_train.cluster._environment import BEFORE_RAY_IMPORT, applied, local_environment
from vime_train.cluster._errors import ClusterError
from vime_train.cluster._scratch import Scratch

_JOIN = "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='ERROR')"
_OBJECT_STORE_BYTES = 256 * 2**20
"""Batches of token ids pass through it; weights do not."""


def start_local(*, processes: int, scratch: Scratch) -> None:
    """Start Ray here, with room for `processes` actors.

    Raises:
        ClusterError: if Ray was imported with settings that would make it listen on every interface.
    """
    if "ray" in sys.modules and any(os.environ.get(name) != value for name, value in BEFORE_RAY_IMPORT.items()):
        settings = " ".join(f"{name}={value}" for name, value in BEFORE_RAY_IMPORT.items())
        raise ClusterError(
            f"Ray was imported before vime-train could keep it on loopback: set {settings} before `import ray`, "
            "or do not import it in the process that starts the run."
        )
    os.environ.update(BEFORE_RAY_IMPORT)
    import ray

    with applied(local_environment(token=scratch.token, scratch=str(scratch.disk))), _sigterm_kept():
        ray.init(
            address="local",
            num_cpus=processes,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            object_store_memory=_OBJECT_STORE_BYTES,
            _node_ip_address="127.0.0.1",
            _temp_dir=str(scratch.disk / "ray"),
        )


def join(address: str, *, timeout_seconds: float) -> None:
    """Connect to a running cluster.

    Raises:
        ClusterError: if nothing listens there, or it is no Ray cluster that answers in time.
    """
    _check_answers(address, timeout_seconds)
    import ray

    with _sigterm_kept():
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")


def _check_answers(address: str, timeout_seconds: float) -> None:
    """Try in another process: `ray.init` waits for minutes where no Ray is, and then ends the process it runs in."""
    named = f"cluster.address = {address!r}"
    host, separator, port = address.rpartition(":")
    if separator and "/" not in host and port.isdigit():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_seconds).close()
        except OSError as error:
            raise ClusterError(f"{named}: nothing listens there ({error}): name the address of a Ray head.") from error
    script = [sys.executable, "-W", "ignore", "-c", _JOIN, address]
    try:
        done = subprocess.run(script, capture_output=True, text=True, timeout=timeout_seconds, check=False)
    except subprocess.TimeoutExpired as error:
        raise ClusterError(
            f"{named}: what listens there did not answer as a Ray cluster within {timeout_seconds:g} s: name the "
            "address of a Ray head, or raise `cluster.start_timeout_seconds` if it only needs longer."
        ) from error
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise ClusterError(f"{named} cannot be joined: {said}")


def stop() -> None:
    """End Ray's processes, or leave the cluster."""
    import ray

    ray.shutdown()


def rendezvous(*, local: bool, scratch: Scratch, root: Path) -> str:
    """Where the trainers meet: a file, since torch's TCP store listens on every interface of the machine.

    On a cluster the run directory is on a file system that all nodes see, or checkpoints would not work either. Each
    start has a file of its own: trainers that read an old one would wait for ranks that are long gone.
    """
    return f"file://{(scratch.disk if local else root) / f'rendezvous-{scratch.token}'}"


class _sigterm_kept:  # noqa: N801
    """Keep the SIGTERM handler that was there; `ray.init` puts its own in its place."""

    def __enter__(self) -> None:
        self._before = signal.getsignal(signal.SIGTERM)

    def __exit__(self, *exception: object) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._before)
