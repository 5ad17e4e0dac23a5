"""A user's rollout function, reward and hook that fail on demand.

`VIME_FAULT` holds words of the form `KIND@ITERATION`; without it all do what the defaults do. The rollout function
tells the hook, which runs in the trainers' processes, what is due, in a file.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from vime_train.cluster import EnginePool
from vime_train.rollout import Problem, RankBatch, Rollout, RolloutContext, generate_rollouts

_state = {"iteration": 0}


def generate(engine: EnginePool, problems: Sequence[Problem], context: RolloutContext) -> list[Rollout]:
    """The default rollouts, with a fault a moment after generation began."""
    _state["iteration"] = context.group_ids[0] // len(problems) + 1
    due = _due()
    logs = Path(context.config.run_dir) / "logs"
    if due == "kill-engine":
        _soon(_process(logs / "engine-0.log"), signal.SIGKILL)
    _due_file().write_text(due or "")
    if due == "driver-disk-full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
    if due in signal.Signals.__members__:
        _soon(os.getpid(), signal.Signals[due])
    if due == "stale-weights":
        _send_old_weights_next(engine, context)
    rollouts = generate_rollouts(engine, problems, context)
    if due is not None:
        time.sleep(0.3)  # the fault strikes before the iteration goes on
    return rollouts


def before_step(batch: RankBatch, step: int) -> None:
    """Kill trainer 1 in the middle of its step, or leave room for the weights and not for the optimizer's state."""
    due = _due_file().read_text()
    if due == "kill-trainer" and torch.distributed.get_rank() == 1:
        _soon(os.getpid(), signal.SIGKILL, seconds=0.01)
    if due == "disk-full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, resource.RLIM_INFINITY))


def reward(problem: Problem, answer: str, *, finished: bool) -> float:
    """The default reward, or an exception."""
    if _due() == "raise":
        raise ZeroDivisionError("the user's reward divides by zero")
    return float(finished and answer.rpartition("#")[2] == problem.answer and answer.count("#") == 1)


def _due() -> str | None:
    faults = dict(word.split("@")[::-1] for word in os.environ.get("VIME_FAULT", "").split())
    return faults.get(str(_state["iteration"]))


def _due_file() -> Path:
    return Path(os.environ["VIME_TEST"], "due")


def _soon(process: int, number: signal.Signals, *, seconds: float = 0.05) -> None:
    threading.Timer(seconds, os.kill, (process, number)).start()


def _send_old_weights_next(engine: EnginePool, context: RolloutContext) -> None:
    """The next sync announces its version and sends the weights from before training."""
    load = engine.load_weights
    engine.load_weights = lambda directory, *, version: load(  # type: ignore[method-assign]
        str(Path(context.config.run_dir) / "model"), version=version
    )


def _process(log: Path) -> int:
    return int(re.findall(r"^process (\d+)$", log.read_text(), flags=re.MULTILINE)[-1])
