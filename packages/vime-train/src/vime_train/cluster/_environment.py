"""Every environment variable that the run sets, and why. Nothing else in vime-train writes one.

Always true of a local run: each listener of Ray, gloo and vLLM binds to loopback, and nothing reports usage.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from vime_train.config import EngineSection

RUN_TOKEN = "VIME_RUN_TOKEN"
"""Marks the processes of one run, so that the ones it left can be found."""

BEFORE_RAY_IMPORT = {
    # Without it Ray replaces 127.0.0.1 by the machine's address, and listens on every interface. Read at import.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}


def local_environment(*, token: str, scratch: str) -> dict[str, str]:
    """What every process of a local run inherits from the driver."""
    return {
        **BEFORE_RAY_IMPORT,
        RUN_TOKEN: token,
        "TMPDIR": scratch,  # vLLM and torch leave store files behind; here they go with the run
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "PYTHONWARNINGS": "ignore",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def engine_environment(section: EngineSection, *, local: bool) -> dict[str, str]:
    """What vLLM reads when it is imported and started in an engine's process."""
    settings = {
        # In the actor's own process: no second process to start, to bind and to lose.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": str(section.kv_cache_gib),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # cores are shared with the trainers
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "TORCHDYNAMO_DISABLE": "1",  # saves half a minute of compilation at the first batch; eager mode runs anyway
        "OMP_NUM_THREADS": str(section.threads),
    }
    if local:
        settings["VLLM_HOST_IP"] = "127.0.0.1"
    return settings


@contextmanager
def applied(settings: Mapping[str, str]) -> Iterator[None]:
    """Set variables for the block, and put the old ones back after it."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
