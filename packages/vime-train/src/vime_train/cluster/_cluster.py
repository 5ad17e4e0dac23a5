"""The processes of one run, from start to end.

Always true after the block, however it ended: no process of the run is left, no file of it in shared memory, and the
trainers and engines ended before their directories went.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from vime_train.cluster import _calls, _processes, _ray
from vime_train.cluster._engines import EnginePool, TeacherPool
from vime_train.cluster._environment import engine_environment
from vime_train.cluster._scratch import Scratch, sweep
from vime_train.cluster._signals import undisturbed
from vime_train.cluster._trainers import TrainerGroup

if TYPE_CHECKING:
    from vime_train.cluster._calls import Handle
    from vime_train.config import RunConfig

_PATIENCE_SECONDS = 5.0
_LEAST_WEIGHT_BYTES = 32 * 2**20


class Cluster:
    """Ray, the trainers and the engines of one run.

    Args:
        config: the run.
        root: its run directory; on a cluster every node sees it.
        logs: where each process writes its log.

    Example:
        >>> with Cluster(config, root=run.root, logs=run.logs) as cluster:  # doctest: +SKIP
        ...     trainers = cluster.begin_trainers(model_path)
        ...     engines = cluster.begin_engines(model_path, max_model_len=96)
        ...     trainers.ready()
        ...     engines.ready()
    """

    def __init__(self, config: RunConfig, *, root: Path, logs: Path) -> None:
        self._config = config
        self._root = root
        self._logs = logs
        self._closing = ExitStack()

    @property
    def local(self) -> bool:
        """Whether the program started Ray itself, on this machine alone."""
        return self._config.cluster.address == "local"

    def __enter__(self) -> Cluster:
        with ExitStack() as started:
            sweep()
            self._scratch = Scratch(weight_bytes=_weight_bytes(self._config))
            started.callback(self._scratch.remove)
            started.callback(_processes.end, self._scratch.token, patience_seconds=_PATIENCE_SECONDS)
            self._start_ray(started)
            self._closing = started.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with undisturbed():
            self._closing.close()

    def begin_trainers(self, model_path: str) -> TrainerGroup:
        """Begin to start the trainer ranks."""
        handles = [self._spawn(f"trainer-{rank}", {}) for rank in range(self._config.layout.world_size)]
        meeting = _ray.rendezvous(local=self.local, scratch=self._scratch, root=self._root)
        return TrainerGroup(handles, self._config, model_path=model_path, init_method=meeting)

    def begin_engines(self, model_path: str, *, max_model_len: int) -> EnginePool:
        """Begin to start the rollout engines, for sequences of up to `max_model_len` tokens."""
        section = self._config.engine
        environment, size = engine_environment(section, local=self.local), section.tensor_parallel_size
        pool = EnginePool(
            lambda index: self._spawn(f"engine-{index}", environment, processes=size),
            section=section,
            model_path=model_path,
            max_model_len=max_model_len,
            seed=self._config.seed,
            native=self._config.vllm,
        )
        self._closing.callback(pool.close)
        return pool

    def begin_teacher(self, *, max_model_len: int) -> TeacherPool | None:
        """Begin to start the engines that serve the teacher, if the run has any."""
        distillation = self._config.algorithm.distillation
        if distillation.teacher is None or not distillation.engines:
            return None
        section = self._config.engine.model_copy(update={"engines": distillation.engines})
        environment = engine_environment(section, local=self.local)
        pool = TeacherPool(
            lambda index: self._spawn(f"teacher-{index}", environment, processes=section.tensor_parallel_size),
            section=section,
            model_path=distillation.teacher,
            max_model_len=max_model_len,
            seed=self._config.seed,
        )
        self._closing.callback(pool.close)
        return pool

    def weights_directory(self, version: int) -> Path:
        """Where weights of this version pass from the trainers to the engines; two directories take turns."""
        base = self._scratch.memory if self.local else self._root / "weights"
        return base / f"weights-{version % 2}"

    def _start_ray(self, started: ExitStack) -> None:
        if self.local:
            processes = self._config.layout.world_size + self._config.engines_in_all
            _ray.start_local(processes=processes, scratch=self._scratch)
        else:
            cluster = self._config.cluster
            _ray.join(cluster.address, timeout_seconds=cluster.start_timeout_seconds)
        started.callback(_ray.stop)

    def _spawn(self, name: str, environment: dict[str, str], *, processes: int = 1) -> Handle:
        gpus = self._config.cluster.gpus_per_process * processes
        token = self._scratch.token if self.local else None
        return _calls.spawn(name, logs=self._logs, environment=environment, num_gpus=gpus, token=token)


def _weight_bytes(config: RunConfig) -> int:
    """Room for two exports of the model, each in fp32 where the files hold two bytes per weight."""
    path = config.model.path
    stored = sum(file.stat().st_size for file in Path(path).glob("*.safetensors")) if path is not None else 0
    return max(_LEAST_WEIGHT_BYTES, 4 * stored)
