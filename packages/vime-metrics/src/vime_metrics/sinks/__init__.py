"""Destinations for reduced metrics."""

from vime_metrics.sinks._console import ConsoleSink
from vime_metrics.sinks._jsonl import JsonlSink
from vime_metrics.sinks._sink import Sink

__all__ = ["ConsoleSink", "JsonlSink", "Sink"]
