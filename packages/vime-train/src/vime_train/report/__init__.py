"""What a run shows: progress while it runs; tables, pictures and pages when it has ended."""

from vime_train.report._metrics_log import MetricsLog
from vime_train.report._progress import PlainProgress, Progress, describe

__all__ = ["MetricsLog", "PlainProgress", "Progress", "describe"]
