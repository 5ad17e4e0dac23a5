"""The parts of an iteration that need more than one line of the controller."""

from vime_train.phases._divergence import DivergenceError, DivergenceGuard
from vime_train.phases._generation import Generation
from vime_train.phases._probe import probe
from vime_train.phases._supervised import learning_rate, train_supervised
from vime_train.phases._sync import WeightSync, WeightSyncError
from vime_train.phases._teacher import scored_by_teacher
from vime_train.phases._timer import Timer
from vime_train.phases._work import Work

__all__ = [
    "DivergenceError",
    "DivergenceGuard",
    "Generation",
    "Timer",
    "WeightSync",
    "WeightSyncError",
    "Work",
    "learning_rate",
    "probe",
    "scored_by_teacher",
    "train_supervised",
]
