"""The parts of an iteration that need more than one line of the controller."""

from vime_train.phases._divergence import DivergenceError, DivergenceGuard
from vime_train.phases._supervised import learning_rate, train_supervised
from vime_train.phases._sync import WeightSync, WeightSyncError
from vime_train.phases._timer import Timer

__all__ = [
    "DivergenceError",
    "DivergenceGuard",
    "Timer",
    "WeightSync",
    "WeightSyncError",
    "learning_rate",
    "train_supervised",
]
