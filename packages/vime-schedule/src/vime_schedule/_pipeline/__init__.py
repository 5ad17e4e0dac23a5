"""Pipelines on paper: 1F1B and interleaved 1F1B, as a number for searches and as a timeline for people."""

from __future__ import annotations

from vime_schedule._pipeline._makespan import pipeline_makespan
from vime_schedule._pipeline._order import Operation
from vime_schedule._pipeline._simulate import PipelineTimeline, TimelineSlot, simulate

__all__ = ["Operation", "PipelineTimeline", "TimelineSlot", "pipeline_makespan", "simulate"]
