"""Real gloo process groups: one process per rank, forked from a server that has torch loaded."""

from __future__ import annotations

import multiprocessing
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "worlds"))

from metrics_scenarios import run_rank


@pytest.fixture(scope="session")
def forks():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch.distributed", "vime_metrics.torch"])
    return context


@pytest.fixture
def run_world(forks, tmp_path):
    """Run the scenario of that name on `size` ranks: what each returned or raised, None from one that died."""

    def run(scenario, size, *args, seconds=60.0):
        started, receivers, ranks = time.monotonic(), [], []
        store = tmp_path / f"store {scenario} {size} {started}"
        for rank in range(size):
            receiver, sender = forks.Pipe(duplex=False)
            process = forks.Process(target=run_rank, args=(scenario, rank, size, str(store), sender, args))
            process.start()
            sender.close()
            receivers.append(receiver)
            ranks.append(process)
        try:
            return [received(receiver, started + seconds) for receiver in receivers]
        finally:
            for process in ranks:
                process.join(max(0.0, started + seconds - time.monotonic()))
                if process.is_alive():
                    process.kill()
                    process.join()

    return run


def received(receiver, deadline):
    if not receiver.poll(max(0.0, deadline - time.monotonic())):
        pytest.fail("a rank neither answered nor died in time: the reduction hangs")
    try:
        return receiver.recv()
    except EOFError:
        return None
