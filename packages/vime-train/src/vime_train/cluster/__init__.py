"""Processes: where they run, how they are called, and that none is left behind. The only room that imports Ray."""

from vime_train.cluster._calls import Call
from vime_train.cluster._cluster import Cluster
from vime_train.cluster._engines import EnginePool, TeacherPool
from vime_train.cluster._environment import engine_environment
from vime_train.cluster._errors import ActorError, ClusterError, log_tail
from vime_train.cluster._signals import terminated_by_exception
from vime_train.cluster._trainers import TrainerGroup

__all__ = [
    "ActorError",
    "Call",
    "Cluster",
    "ClusterError",
    "EnginePool",
    "TeacherPool",
    "TrainerGroup",
    "engine_environment",
    "log_tail",
    "terminated_by_exception",
]
