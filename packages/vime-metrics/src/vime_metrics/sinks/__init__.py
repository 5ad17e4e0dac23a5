"""Destinations for reduced metrics."""

from vime_metrics.sinks._console import ConsoleSink
from vime_metrics.sinks._jsonl import JsonlSink
from vime_metrics.sinks._mlflow import MlflowSink
from vime_metrics.sinks._sink import Sink
from vime_metrics.sinks._sinks import MultiSink, SinkWarning
from vime_metrics.sinks._tensorboard import TensorBoardSink
from vime_metrics.sinks._wandb import WandbSink

__all__ = [
    "ConsoleSink",
    "JsonlSink",
    "MlflowSink",
    "MultiSink",
    "Sink",
    "SinkWarning",
    "TensorBoardSink",
    "WandbSink",
]
