"""Ray stays on loopback, or is not started; ports that others have taken do not matter, and joining ends in time."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from vime_train.cluster import Cluster, ClusterError
from vime_train.cluster._ray import _check_answers
from vime_train.config import RunConfig

IMPORTED_TOO_EARLY = """
import ray
from pathlib import Path
from vime_train.cluster import Cluster, ClusterError
from vime_train.cluster._ray import _check_answers
from vime_train.config import RunConfig
try:
    with Cluster(RunConfig(), root=Path("."), logs=Path(".")):
        pass
except ClusterError as error:
    print(error)
"""


def test_ray_that_would_listen_on_every_interface_is_refused() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED_TOO_EARLY], capture_output=True, text=True, check=True, env=environment
    )
    assert "set RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 before `import ray`" in done.stdout


def test_importing_the_room_imports_neither_ray_nor_torch() -> None:
    script = "import vime_train.cluster, sys; print([name for name in ('ray', 'torch', 'vllm') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


USUAL_PORTS = (6379, 8265, 10001, 52365)
"""Those of Ray's head, dashboard, client server and agent when nobody says otherwise."""
START = """
from pathlib import Path
from vime_train.cluster import Cluster
from vime_train.cluster._calls import call, start, wait
from vime_train.config import RunConfig
if __name__ == "__main__":
    with Cluster(RunConfig.model_validate({"layout": {"dp": 1}}), root=Path("."), logs=Path(".")) as cluster:
        handle = cluster._spawn("held", {})
        wait([start(handle, list, {})], timeout_seconds=60, setting="x")
        print(wait([call(handle, "__len__", doing="count")], timeout_seconds=60, setting="x"))
"""


def test_ports_that_are_in_use_change_nothing(tmp_path: Path) -> None:
    """As where another Ray runs on the machine: a port that is taken already is as good."""
    with ExitStack() as taken:
        for port in USUAL_PORTS:
            with suppress(OSError):
                taken.enter_context(socket.create_server(("127.0.0.1", port)))
        script = [sys.executable, "-W", "ignore", "-c", START]
        done = subprocess.run(script, capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path)
    assert (done.stdout.strip(), done.returncode) == ("[0]", 0), done.stderr


def join(address: str, timeout_seconds: float) -> str:
    config = RunConfig.model_validate({"cluster": {"address": address, "start_timeout_seconds": timeout_seconds}})
    with pytest.raises(ClusterError) as caught, Cluster(config, root=Path("."), logs=Path(".")):
        pytest.fail("there is no cluster")
    return str(caught.value)


def test_an_address_where_nothing_listens_is_told_at_once() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # taken, so that nobody else listens there meanwhile
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        text = join(address, 60)
    assert text.startswith(f"cluster.address = '{address}': nothing listens there (")
    assert "refused" in text


def test_an_address_where_something_else_listens_is_told_within_the_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        text = join(address, 5)
    assert text.startswith(
        f"cluster.address = '{address}': what listens there did not answer as a Ray cluster within 5 s"
    )
    assert "`cluster.start_timeout_seconds`" in text


def test_a_ray_that_runs_answers(cluster: Cluster) -> None:
    import ray

    _check_answers(ray.get_runtime_context().gcs_address, timeout_seconds=60)
