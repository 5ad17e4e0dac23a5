"""Processes: where they run, how they are called, and that none is left behind. The only room that imports Ray."""

from vime_train.cluster._cluster import Cluster
from vime_train.cluster._errors import ActorError, ClusterError
from vime_train.cluster._signals import Terminated, terminated_by_exception

__all__ = ["ActorError", "Cluster", "ClusterError", "Terminated", "terminated_by_exception"]
