"""Ray stays on loopback, or is not started."""

from __future__ import annotations

import os
import subprocess
import sys

IMPORTED_TOO_EARLY = """
import ray
from pathlib import Path
from vime_train.cluster import Cluster, ClusterError
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
