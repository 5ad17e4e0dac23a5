"""Training metrics as values that add, reduced across ranks in a fixed small number of collectives."""

from vime_metrics._errors import MetricError, ReductionError, SchemaError, SinkError
from vime_metrics._extremes import Last, Max, Min
from vime_metrics._histogram import Histogram, TextCounts
from vime_metrics._merge import merge
from vime_metrics._metric import Metric
from vime_metrics._moments import Std
from vime_metrics._quantiles import Quantiles
from vime_metrics._recorder import Recorder, record, recording
from vime_metrics._reduction import SimulatedWorld
from vime_metrics._sums import Count, Mean, Rate, Sum
from vime_metrics.sinks import (
    ConsoleSink,
    JsonlSink,
    MlflowSink,
    MultiSink,
    Sink,
    SinkWarning,
    TensorBoardSink,
    WandbSink,
)

__all__ = [
    "ConsoleSink",
    "Count",
    "Histogram",
    "JsonlSink",
    "Last",
    "Max",
    "Mean",
    "Metric",
    "MetricError",
    "Min",
    "MlflowSink",
    "MultiSink",
    "Quantiles",
    "Rate",
    "Recorder",
    "ReductionError",
    "SchemaError",
    "SimulatedWorld",
    "Sink",
    "SinkError",
    "SinkWarning",
    "Std",
    "Sum",
    "TensorBoardSink",
    "TextCounts",
    "WandbSink",
    "merge",
    "record",
    "recording",
]
